"""The playbook teardown.yml on process trees that stand in for engines, with simulated cards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.gateway import place
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from cases import always
from harness import BIN, ROOT, Run, Site, alive, free_port
from simulators.install import install
from trees import OBEDIENT, QUICK, start, with_cards


def service(name: str) -> dict[str, Any]:
    """What the inventory says of a service; its model is never looked at by a teardown."""
    return {"name": name, "model": {"id": "tiny", "path": "/nowhere"}, "listen": {"base_port": free_port(2)}}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, [])
    made.home.mkdir()
    made.variables["modelyard_runtimes_dir"] = str(tmp_path / "runtimes")
    yield made
    for name in layout.services(str(made.home)):
        run.stop_service(str(made.home), name, options=QUICK)


@pytest.fixture
def sim(tmp_path: Path, site: Site) -> Any:
    made = install(tmp_path / "sim", "2x4090", python=str(BIN / "python"))
    site.variables.update(modelyard_sysroot=str(made.root), modelyard_tool_path=[str(made.bin)])
    return made


def test_one_that_needs_an_admin_is_reported_and_the_others_are_stopped(site: Site, sim: Any) -> None:
    site.services = [service("held-one"), service("well-one")]
    site.services[1]["listen"]["base_port"] += 10
    files = with_cards(site.home, sim, [0], "held-one")
    held = start(site.home, f"exec 10<{files[0]}\n{OBEDIENT}", "held-one")
    well = start(site.home, OBEDIENT, "well-one")
    sim.set("memory_stays", card=0)
    shown = site.play("teardown", "--check", teardown_memory_s=2)
    assert shown.rc == 0, shown.output[-3000:]
    assert f"would send SIGINT to {held['leader']['pid']} (bash)" in shown.output
    assert "would wait up to 2 s until the memory of card 0 is back" in shown.output
    assert alive(held["leader"]["pid"])
    done = site.play("teardown", teardown_memory_s=2)
    assert done.rc != 0
    assert not alive(held["leader"]["pid"])
    assert not alive(well["leader"]["pid"])
    assert f"SIGINT to {well['leader']['pid']} (bash): asked to stop" in done.output
    assert "held-one needs an admin: card 0 (0000:01:00.0): 30004 MiB in use" in done.output
    assert f"{site.home}/evidence/" in done.output
    assert "Choices, the gentlest first" in done.output
    assert not (site.home / "lock").exists()
    look = site.play("preflight")
    assert "PF-NEEDS-ADMIN  host-a:held-one" not in look.output  # both are services on CPU cores: that card is in nobody's way
    sim.clear()
    again = site.play("teardown", teardown_memory_s=2)
    assert again.rc == 0, again.output[-3000:]
    assert "needs_admin.json removed" in again.output


def test_a_service_that_is_not_there_is_refused_by_name(site: Site) -> None:
    site.services = [service("well-one")]
    done = site.play("teardown", teardown_service="nobody")
    assert done.rc != 0
    assert "There is no service nobody" in done.output
    done = site.play("teardown", teardown_service="nobody", only="well-one")
    assert done.rc != 0
    assert "give one of them" in done.output


def played(site: Site, role: dict[str, Any], **variables: Any) -> Run:
    """Run one part of a role by itself, with what other roles would have registered."""
    path = site.folder / "part.yml"
    tasks = [{"ansible.builtin.import_role": role}]
    path.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    return site.play(os.path.relpath(path, ROOT / "playbooks").removesuffix(".yml"))


def test_the_next_deploy_forgets_what_an_admin_has_solved(site: Site) -> None:
    for name in ("held-one", "other-one"):
        (site.home / "services" / name).mkdir(parents=True)
        (site.home / "services" / name / "needs_admin.json").write_text("{}")
    found = [{"id": "PF-ADMIN-DONE", "where": "host-a:held-one"}, {"id": "PF-NEEDS-ADMIN", "where": "host-a:other-one"}]
    done = played(
        site,
        {"name": "plan", "tasks_from": "record"},
        modelyard_intent={"home": str(site.home)},
        plan_result={"baseline": {}, "findings": found},
    )
    assert (done.rc, done.changed) == (0, 1), done.output
    left = [p.parent.name for p in site.home.glob("services/*/needs_admin.json")]
    assert left == ["other-one"]


def test_a_teardown_asks_no_runtime_whether_it_works(site: Site, tmp_path: Path) -> None:
    python = tmp_path / "runtime" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    python.chmod(0o755)
    site.services = [{**service("well-one"), "runtime_path": str(tmp_path / "runtime")}]
    state = start(site.home, OBEDIENT, "well-one")
    done = site.play("teardown")
    assert done.rc == 0, done.output[-3000:]
    assert (alive(state["leader"]["pid"]), (tmp_path / "asked").exists()) == (False, False)


@pytest.mark.parametrize(
    ("only", "alive_after"),
    always(1, [({"well-one": [1]}, [True, False]), ({"well-one": []}, [False, False]), ({}, [False, False])]),
)
def test_only_names_the_instances_that_are_stopped(site: Site, only: dict[str, list[int]], alive_after: list[bool]) -> None:
    states = [start(site.home, OBEDIENT, "well-one", index) for index in (0, 1)]
    intent = {"home": str(site.home), "runtimes_dir": "", "services": [{"name": "well-one"}], "only": only}
    survey = {"services": {"well-one": {"known": True}, "not-wanted": {"known": True}}}
    done = played(site, {"name": "teardown"}, modelyard_intent=intent, survey_result={"survey": survey})
    assert done.rc == 0, done.output
    assert [alive(state["leader"]["pid"]) for state in states] == alive_after
    unknown = played(
        site, {"name": "teardown"}, modelyard_intent={**intent, "only": {"gone": [0]}}, survey_result={"survey": survey}
    )
    assert unknown.rc != 0
    assert "There is no service gone" in unknown.output


GATEWAY = place.name("well-one")


@pytest.mark.parametrize(
    ("only", "chosen", "alive_after"),
    always(
        2,
        [
            ({}, "", [False, False, False]),
            ({"well-one": [1]}, "", [True, False, True]),
            ({}, "well-one", [False, False, False]),
            ({"well-one": []}, "", [False, False, False]),
            ({}, GATEWAY, [True, True, False]),
        ],
    ),
)
def test_a_whole_service_goes_after_its_gateway_and_a_part_without_it(
    site: Site, only: dict[str, list[int]], chosen: str, alive_after: list[bool]
) -> None:
    states = [start(site.home, OBEDIENT, "well-one", index) for index in (0, 1)]
    states.append(start(site.home, OBEDIENT, GATEWAY))
    intent = {"home": str(site.home), "runtimes_dir": "", "services": [{"name": "well-one"}], "only": only}
    survey = {"services": {"well-one": {"known": True}, GATEWAY: {"known": True}}}
    done = played(site, {"name": "teardown"}, modelyard_intent=intent, survey_result={"survey": survey}, teardown_service=chosen)
    assert done.rc == 0, done.output
    assert [alive(state["leader"]["pid"]) for state in states] == alive_after
    if not any(alive_after):
        assert done.output.index(f"SIGINT to {states[2]['leader']['pid']}") < done.output.index(
            f"SIGINT to {states[0]['leader']['pid']}"
        )


def test_a_gateway_without_its_service_is_stopped_by_the_services_name(site: Site) -> None:
    state = start(site.home, OBEDIENT, GATEWAY)
    intent = {"home": str(site.home), "runtimes_dir": "", "services": [{"name": "well-one"}], "only": {}}
    survey = {"services": {"well-one": {"known": False}, GATEWAY: {"known": True}}}
    done = played(site, {"name": "teardown"}, modelyard_intent=intent, survey_result={"survey": survey})
    assert done.rc == 0, done.output
    assert not alive(state["leader"]["pid"])
