"""The keeper over real processes: its log, its history, what it ends and what it never touches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, supervisor
from harness import ROOT, alive, free_port, session_of, until

NAME = "kept-one"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from deployed.stopped_afterwards(tmp_path)


def folder_of(home: Path, script: str | None = None, words: tuple[str, ...] = (), **changes: Any) -> Path:
    """The folder of an instance; `script` instead of the engine."""
    deployed.write(home, deployed.service(home, NAME, free_port(), words=words, **changes))
    folder = layout.instance_dir(str(home), NAME, 0)
    if script is not None:
        (folder / "launch.sh").write_text(f'#!/bin/bash\ncd "$(dirname "$0")/run"\nexport MODELYARD_SERVICE={NAME}\n{script}')
    return folder


def start(folder: Path) -> dict[str, Any]:
    return supervisor.start_once(folder, layout.read_json(folder / layout.REQUEST_FILE), sys.executable)


def ended(folder: Path) -> dict[str, Any]:
    until(lambda: not layout.keeper_alive(layout.state(folder)), 40, "the keeper has ended")
    return json.loads((folder / "run/starts.json").read_text())["starts"][-1]


def test_a_log_beyond_its_cap_keeps_its_beginning_and_its_end_while_the_engine_writes_on(home: Path) -> None:
    script = (
        'echo first; for i in $(seq 1 30); do for j in $(seq 1 700); do echo "$i.$j '
        + "x" * 90
        + '"; done; sleep 0.1; done; echo last'
    )
    folder = folder_of(home, script, logs={"cap_mib": 1, "keep": 20})
    log = Path(start(folder)["log"])
    ended(folder)
    text = log.read_text()
    assert log.stat().st_size < 2.5 * 2**20
    assert text.startswith("first\n1.1 ")
    assert text.endswith("last\n")
    assert text.count("--- modelyard: ") >= 1
    assert "\0" not in text


def test_each_start_is_written_down_with_how_it_ended(home: Path) -> None:
    folder = folder_of(home, "exit 3\n")
    for _ in range(2):
        start(folder)
        last = ended(folder)
        assert (last["code"], last["signal"], last["asked"], last["ordered"]) == (3, None, False, True)
    assert len(json.loads((folder / "run/starts.json").read_text())["starts"]) == 2


def test_an_end_that_was_ordered_counts_as_no_failure(home: Path) -> None:
    folder = folder_of(home)
    state = start(folder)
    until(lambda: layout.state(folder)["ready_at"], 10, "its /health was seen")
    supervisor.SUPERVISORS["plain"].release(folder, state["request"], 1.0)
    os.kill(state["leader"]["pid"], signal.SIGINT)
    assert ended(folder)["asked"] is True


def test_garbage_in_its_files_stops_no_start(home: Path) -> None:
    folder = folder_of(home, "exit 0\n")
    (folder / "run").mkdir()
    for name in ("starts.json", "state.json", "request.json", "asked.json"):
        (folder / "run" / name).write_text('{"starts": [{"log": 3}], "leader"')
    assert start(folder)["leader"]["pid"] > 0
    assert ended(folder)["code"] == 0


def test_a_start_without_a_whole_request_is_refused_with_the_reason(home: Path) -> None:
    folder = folder_of(home)
    request = layout.read_json(folder / layout.REQUEST_FILE)
    (folder / layout.REQUEST_FILE).write_text("{")
    (folder.parent / layout.PROGRAM).write_bytes(b"no program")
    with pytest.raises(supervisor.StartError, match="did not start the engine"):
        supervisor.start_once(folder, request, sys.executable)
    assert session_of(os.getpid()) is not None
    assert layout.state(folder) is None


def test_a_killed_keeper_takes_neither_engine_nor_log_with_it(home: Path) -> None:
    folder = folder_of(home, "while :; do echo tick; sleep 0.1; done\n")
    state = start(folder)
    os.kill(state["keeper"]["pid"], signal.SIGKILL)
    until(lambda: not alive(state["keeper"]["pid"]), 5, "the keeper is dead")
    before = Path(state["log"]).stat().st_size
    until(lambda: Path(state["log"]).stat().st_size > before + 20, 5, "the engine writes on")
    assert alive(state["leader"]["pid"])


def test_two_starts_at_once_start_one(home: Path) -> None:
    folder = folder_of(home)
    request = layout.read_json(folder / layout.REQUEST_FILE)
    code = (
        "import sys, json; from pathlib import Path\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.process import supervisor\n"
        "try:\n    supervisor.start_once(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.executable)\n"
        "except supervisor.StartError as exc:\n    print(exc); sys.exit(7)\n"
    )
    words = [sys.executable, "-c", code, str(folder), json.dumps(request)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    both = [subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [one.communicate()[0] for one in both]
    assert sorted(one.returncode for one in both) == [0, 7, 7, 7], said
    assert len(json.loads((folder / "run/starts.json").read_text())["starts"]) == 1


def test_under_systemd_what_a_dead_api_server_left_behind_is_ended_and_then_the_keeper(home: Path) -> None:
    # Run here as systemd would run it: in the foreground, with its own session; only the wait is shorter.
    folder = folder_of(home, "sleep 300 & sleep 300 & wait\n")
    code = (
        "import sys; from pathlib import Path; sys.argv[0] = sys.argv[2]\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.process import keeper\n"
        "keeper.REST_S = 0.5\n"
        "sys.exit(keeper.run(Path(sys.argv[1]), keeper.Orders('systemd', 'modelyard-kept-one.service', True)))\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(folder.parent / layout.PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "collections"), "MODELYARD_SERVICE": NAME},
        start_new_session=True,
    )
    until(lambda: len(session_of(running.pid)) == 4, 5, "all run")
    state = layout.state(folder)
    assert state["supervised"] == {"kind": "systemd", "name": "modelyard-kept-one.service"}
    os.kill(state["leader"]["pid"], signal.SIGKILL)
    assert running.wait(timeout=40) == 0
    assert session_of(running.pid) == []
    assert layout.state(folder)["ended"]["signal"] == 9


def test_under_systemd_a_term_goes_to_the_engine_and_counts_as_ordered(home: Path) -> None:
    folder = folder_of(home)
    running = subprocess.Popen(
        [sys.executable, str(folder.parent / layout.PROGRAM), "keep", str(folder), "--under", "systemd", "--name", "x.service"],
        start_new_session=True,
    )
    until(lambda: (layout.state(folder) or {}).get("ready_at"), 10, "it answers")
    running.terminate()
    assert running.wait(timeout=10) == 0
    assert ended(folder)["asked"] is True


def test_plain_keeps_what_is_left_and_ends_nothing(home: Path) -> None:
    folder = folder_of(home, "sleep 300 &\nexit 0\n")
    state = start(folder)
    until(lambda: layout.state(folder)["ended"], 5, "the end of the server is written down")
    assert len(session_of(state["keeper"]["pid"])) == 2
    with pytest.raises(supervisor.StartError, match="live on without their API server"):
        start(folder)
