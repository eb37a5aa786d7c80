"""A home whose disk has become read-only: everything is stopped all the same, and what cannot be written is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from harness import Site, alive, free_port, session_of, until
from simulators.install import install
from trees import QUICK, deployed_on_cards

NAME = "read-only"


@pytest.fixture
def sim(tmp_path: Path) -> Any:
    return install(tmp_path / "sim", "2x4090", python=sys.executable)


@pytest.fixture
def site(tmp_path: Path, sim: Any) -> Iterator[Site]:
    """A service that runs, in a home that cannot be written to any more."""
    made = Site(tmp_path, [{"name": NAME, "model": {"id": "tiny", "path": "/nowhere"}}])
    made.home.mkdir()
    made.variables = {
        "modelyard_sysroot": str(sim.root),
        "modelyard_tool_path": [str(sim.bin)],
        "modelyard_runtimes_dir": str(tmp_path / "home/runtimes"),
    }
    folder = deployed_on_cards(made.home, sim, [0], deployed.service(made.home, NAME, free_port()), memory_s=1)
    request = layout.read_json(folder / layout.REQUEST_FILE)
    assert request is not None
    supervisor.start_once(folder, request, sys.executable)
    until(lambda: (layout.state(folder) or {}).get("ready_at"), 10, "it answers")
    layout.write_json(folder.parent / "accepted.json", {"instances": [{"index": 0}]})
    # A mount of its own over the first: the engine's log is open for writing, which keeps that one writable.
    home = str(made.home)
    if subprocess.run(["mount", "--bind", home, home], check=False, capture_output=True).returncode:
        run.stop_service(home, NAME, options=QUICK)
        pytest.skip("needs the right to mount a folder read-only (root)")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
        with pytest.raises(OSError, match="Read-only"):
            (made.home / "x").touch()
        yield made
    finally:
        sim.clear()
        subprocess.run(["umount", "--lazy", home], check=True)
        run.stop_service(home, NAME, options=QUICK)


def by_hand(site: Site) -> tuple[int, str]:
    done = deployed.call(site.home / "services" / NAME, "stop.sh")
    return done.returncode, done.stdout + done.stderr


def gone(site: Site) -> bool:
    state = site.state(NAME)
    assert state is not None
    return session_of(state["keeper"]["pid"]) == [] and not alive(state["leader"]["pid"])


def written(site: Site) -> set[str]:
    return {str(path) for path in site.home.rglob("*") if "/logs/" not in str(path)}


def test_stop_sh_stops_it_and_says_what_could_not_be_written(site: Site) -> None:
    before = written(site)
    code, said = by_hand(site)
    assert code == 0, said
    assert gone(site)
    assert "accepted.json could not be changed; it is bound to processes that are gone" in said
    assert said.splitlines()[-1].endswith("s: nothing of it is left")
    assert "Traceback" not in said
    assert written(site) == before


def test_a_report_that_cannot_be_written_is_said_by_stop_sh(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 20000, card=0)
    code, said = by_hand(site)
    assert code == 1, said
    assert gone(site)
    last = said.splitlines()[-1]
    assert last.startswith(f"{NAME} needs an admin: card 0 (0000:01:00.0): 20004 MiB in use")
    assert "could not be written whole ([Errno 30] Read-only file system" in last
    for words in ("Processes that are left", "SIGINT to", "Choices, the gentlest first", "nvidia-smi --gpu-reset -i 0"):
        assert words in said
    assert not (site.home / "evidence").exists()


def test_a_teardown_goes_on_without_a_lock_and_shows_the_report(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 20000, card=0)
    done = site.play("teardown")
    assert done.rc != 0
    assert gone(site)
    for words in (
        f"the disk of {site.home} is read-only: going on without a lock",
        "needs an admin: card 0 (0000:01:00.0): 20004 MiB in use",
        "Read-only file system",
        "Choices, the gentlest first",
        "nvidia-smi --gpu-reset -i 0",
    ):
        assert words in done.output, done.output[-4000:]
    sim.clear()
    again = site.play("teardown")
    assert again.rc == 0, again.output[-4000:]


def test_a_deploy_is_refused_there_with_what_to_look_at(site: Site) -> None:
    module = "modelyard.core.deploy_lock"
    words = [str(Path(sys.executable).parent / "ansible"), "-i", str(site.inventory), "host-a", "-m", module]
    done = subprocess.run([*words, "-a", f"home={site.home}"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "could not be taken: [Errno 30] Read-only file system" in done.stdout
    assert "Look into the kernel's log (dmesg)" in done.stdout
