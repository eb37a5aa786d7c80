"""The module gateway_control and the tasks of the role service around a start, with a running gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_gateway
import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from gateway.conftest import installed
from gateway.kinds import Gateway, Stub
from harness import ROOT, Run, Site
from trees import QUICK

NAME = "module-doors"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, [])
    made.home.mkdir()
    yield made
    for name in layout.services(str(made.home)):
        run.stop_service(str(made.home), name, options={**QUICK, "linger_s": 1})


@pytest.fixture
def kept(site: Site, stub: Stub) -> Gateway:
    """A gateway of NAME with two instances that nobody keeps."""
    if not installed("haproxy"):
        pytest.skip("haproxy is not installed")
    made = kept_gateway.write(site.home, NAME, "haproxy", [stub.base, stub.base + 1])
    kept_gateway.start(made)
    return made


def played(site: Site, arguments: str, *tasks: dict[str, Any], **variables: Any) -> Run:
    path = site.folder / "part.yml"
    path.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "vars": variables, "tasks": list(tasks)}]))
    return site.play(str(Path("../" * len(ROOT.joinpath("playbooks").parts)) / str(path.with_suffix(""))[1:]), arguments)


def control(site: Site, arguments: str = "", **options: Any) -> tuple[Run, str]:
    """(run, what the module gave in JSON, as it is shown)."""
    values = {"home": str(site.home), "service": NAME, **options}
    shown = {"ansible.builtin.debug": {"msg": "gave {{ given | to_json }}"}}
    done = played(site, arguments, {"modelyard.core.gateway_control": values, "register": "given"}, shown)
    return done, " ".join(done.output.split())  # it is shown in lines of some length


def drained(site: Site) -> list[bool]:
    return [door.draining for door in doors.look(str(site.home), NAME)]


def test_out_and_in_change_only_what_is_not_so_yet(kept: Gateway, site: Site) -> None:
    looked, output = control(site, "--check", out=[0])
    assert (looked.rc, looked.changed, drained(site)) == (0, 1, [False, False]), output
    done, output = control(site, out=[0, 7], wait_s=5)
    assert (done.rc, done.changed, drained(site)) == (0, 1, [True, False]), output
    assert f'"name": "{NAME}/0", "draining": true, "in_flight": 0' in output
    assert f"gateway: {NAME}/0 takes no new requests, 0 in flight" in output
    assert control(site, out=[0])[0].changed == 0
    done, output = control(site, **{"in": [0, 1]})
    assert (done.changed, drained(site)) == (1, [False, False])
    assert f"gateway: {NAME}/0 may get requests again" in output
    done, _ = control(site, **{"in": [0], "out": [0]})
    assert done.rc != 0
    assert f"{NAME}/0 cannot be both out and in" in " ".join(done.output.split())


def test_without_a_running_gateway_nothing_is_done(site: Site, stub: Stub) -> None:
    kept_gateway.write(site.home, NAME, "haproxy", [stub.base])
    done, output = control(site, out=[0])
    assert (done.rc, done.changed) == (0, 0)
    assert '"runs": false' in output


def started(site: Site, gateway: dict[str, Any]) -> Run:
    """The tasks of a start up to the first that needs a whole plan."""
    planned = {"name": NAME, "gateway": gateway, "concerned": True, "accepted": False}
    files = [{"name": NAME, "started": [{"name": f"{NAME}/1", "index": 1}], "waited": []}]
    tasks = yaml.safe_load((ROOT / "roles/service/tasks/start.yml").read_text(encoding="utf-8"))[:2]
    names = yaml.safe_load((ROOT / "roles/service/vars/main.yml").read_text(encoding="utf-8"))
    variables = {
        "__service_gateways": names["__service_gateways"],
        "__service_files": files,
        "__service_by_name": {NAME: files[0]},
    }
    values = {"modelyard_intent": {"home": str(site.home)}, "plan_result": {"services": [planned]}}
    return played(site, "", *tasks, **variables, **values)


def test_a_start_keeps_requests_away_from_what_is_not_proven(kept: Gateway, site: Site) -> None:
    assert started(site, {}).changed == 0
    assert drained(site) == [False, False]
    done = started(site, {"kind": "haproxy"})
    assert (done.rc, done.changed, drained(site)) == (0, 1, [False, True]), done.output
    (kept.folder / place.SPEC_FILE).unlink()
    done = started(site, {"kind": "haproxy"})
    assert done.rc == 0, done.output
    assert "It may send requests to instances that are not proven yet." in done.output
    assert "spec.json is not there or not whole" in done.output
