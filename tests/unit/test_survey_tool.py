from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import tool
from harness import alive, until


@pytest.fixture
def script(tmp_path):
    def make(body: str, name: str = "smi") -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    return make


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text(encoding="ascii").endswith("\n"), 5, f"{path} is written")
    return int(path.read_text(encoding="ascii"))


def test_a_tool_that_ends_gives_its_outputs_and_its_exit_code(script):
    said = tool.run([script("echo out; echo err >&2; exit 3"), "-q"], 10)
    assert said["rc"] == 3
    assert (said["stdout"], said["stderr"], said["note"]) == ("out\n", "err\n", "")
    assert said["argv"][1:] == ["-q"]
    assert said["timed_out"] is False
    assert 0 < said["seconds"] < 5


def test_a_tool_that_is_not_there_is_said_in_words():
    said = tool.run(["/nonexistent/nvidia-smi"], 1)
    assert said["rc"] is None
    assert said["timed_out"] is False
    assert said["note"] == "/nonexistent/nvidia-smi could not be started: No such file or directory"


def test_a_file_that_is_no_program_is_said_in_words(tmp_path):
    path = tmp_path / "smi"
    path.write_bytes(b"\x00\x01")
    path.chmod(0o755)
    said = tool.run([str(path)], 1)
    assert said["rc"] is None
    assert "could not be started: Exec format error" in said["note"]


def test_a_tool_that_a_signal_ended_gives_the_signal(script):
    assert tool.run([script("kill -ABRT $$")], 10)["rc"] == -signal.SIGABRT


def test_a_tool_that_hangs_is_ended_at_the_limit_and_what_it_printed_is_kept(script):
    said = tool.run([script("echo begun; exec sleep 60")], 1.5)
    assert said["timed_out"] is True
    assert said["rc"] is None
    assert said["stdout"] == "begun\n"
    assert 1.5 <= said["seconds"] < 4
    assert said["note"].endswith("had not ended after 1.5 s and was killed")


def test_sigterm_is_not_what_ends_it_and_its_children_end_with_it(script, tmp_path):
    pids = tmp_path / "child"
    child = f"sh -c \"trap '' TERM INT HUP; echo \\$\\$ >{pids}; while :; do sleep 1; done\" &"
    said = tool.run([script(f"trap '' TERM INT HUP\n{child}\nwhile :; do sleep 1; done")], 1.5)
    assert said["timed_out"] is True
    child = pid_in(pids)
    until(lambda: not alive(child), 5, "the child is gone")


def test_a_child_that_holds_the_output_open_is_not_waited_for_and_is_ended(script, tmp_path):
    pids = tmp_path / "child"
    said = tool.run([script(f"sh -c 'echo $$ >{pids}; exec sleep 60' &\nwhile [ ! -s {pids} ]; do :; done\necho done")], 20)
    assert (said["rc"], said["stdout"], said["timed_out"]) == (0, "done\n", False)
    assert said["seconds"] < 10
    child = pid_in(pids)
    until(lambda: not alive(child), 5, "the child is gone")


def test_a_child_in_a_session_of_its_own_is_not_waited_for_either(script, tmp_path):
    pids = tmp_path / "child"
    body = f"setsid sh -c 'echo $$ >{pids}; exec sleep 60' &\nwhile [ ! -s {pids} ]; do :; done\necho done"
    said = tool.run([script(body)], 20)
    child = pid_in(pids)
    os.kill(child, signal.SIGKILL)
    assert (said["rc"], said["stdout"]) == (0, "done\n")
    assert said["seconds"] < 10


def test_an_escaped_child_that_writes_for_ever_does_not_hold_us_up(script, tmp_path):
    pids = tmp_path / "child"
    body = f"setsid sh -c 'echo $$ >{pids}; exec yes' &\nwhile [ ! -s {pids} ]; do :; done"
    said = tool.run([script(body)], 20)
    # Its pipe has no reader any more, so it ends by itself.
    child = pid_in(pids)
    until(lambda: not alive(child), 5, "the child is gone")
    assert (said["rc"], said["timed_out"]) == (0, False)
    assert said["seconds"] < 10


def test_a_tool_that_closes_its_outputs_and_goes_on_is_waited_for(script):
    said = tool.run([script("exec >&- 2>&-; sleep 0.3; exit 7")], 10)
    assert said["rc"] == 7
    assert said["seconds"] >= 0.3


def test_endless_output_is_cut_and_ends_at_the_limit(script):
    said = tool.run([script("exec yes")], 0.5)
    assert said["timed_out"] is True
    assert len(said["stdout"]) == tool.OUTPUT_BYTES
    assert "only the first 256 KiB of what it printed were kept" in said["note"]


def test_long_output_is_cut_and_the_tool_still_runs_to_its_end(script):
    said = tool.run([script("head -c 300000 /dev/zero | tr '\\0' x; exit 4")], 20, keep=1000)
    assert (said["rc"], said["stdout"]) == (4, "x" * 1000)
    assert "only the first" in said["note"]


def test_an_entry_is_cut_to_what_a_survey_carries(script):
    said = tool.run([script("head -c 300000 /dev/zero | tr '\\0' x")], 20, keep=2**20)
    assert len(said["stdout"]) == 300000
    assert len(tool.cut(said)["stdout"]) == 256 * 1024


def test_bytes_that_are_no_text_do_no_harm(script):
    assert tool.run([script(r"printf '\377\376ok'")], 10)["stdout"] == "\ufffd\ufffdok"


def test_what_a_tool_gets(script, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PATH", "/opt/mine")
    said = tool.run([script("cat; tty; /usr/bin/env")], 10, env={"MORE": "1"})
    lines = said["stdout"].splitlines()
    assert lines[0] == "not a tty"
    assert {"LC_ALL=C", "MORE=1"} <= set(lines)
    assert not [line for line in lines if line.startswith(("http_proxy", "LANG", "PYTHONPATH"))]
    assert next(line for line in lines if line.startswith("PATH=")).startswith("PATH=/opt/mine:/usr/local/sbin:")


def test_no_zombie_is_left(script):
    tool.run([script("exit 0")], 10)
    tool.run([script("exec sleep 60")], 0.2)
    shown = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "stat=,args="], capture_output=True, text=True, check=False)
    assert not [line for line in shown.stdout.splitlines() if line.startswith("Z")]


def test_a_tool_that_does_not_die_is_left_alone_and_reaped_when_it_does(script, monkeypatch, tmp_path):
    # A process in the state D cannot be made here. One that nobody signals looks the same to the code.
    monkeypatch.setattr(tool, "_kill_group", lambda pgid: None)
    monkeypatch.setattr(tool, "DEATH_S", 0.3)
    pids = tmp_path / "pid"
    said = tool.run([script(f"echo $$ >{pids}; exec sleep 60")], 1.0)
    pid = pid_in(pids)
    assert said["timed_out"] is True
    assert f"it is still there 0.3 s after SIGKILL (pid {pid}, stuck in the kernel) and was left alone" in said["note"]
    assert said["seconds"] < 5
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), 5, "it is reaped")


def test_tools_can_be_run_from_several_threads(script):
    path = script("echo $1; exit $1")
    found = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: tool.run([path, str(n)], 20)})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: (said["rc"], said["stdout"]) for n, said in found.items()} == {n: (n, f"{n}\n") for n in range(8)}


def test_the_first_program_that_may_be_run_is_found(tmp_path):
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "smi").write_text("", encoding="ascii")
    (tmp_path / "b" / "smi").chmod(0o755)
    (tmp_path / "c" / "smi").chmod(0o755)
    (tmp_path / "d" / "smi").mkdir(parents=True)
    places = [str(tmp_path / name) for name in ("missing", "d", "a", "c")]
    assert tool.find("smi", places, str(tmp_path / "b")) == str(tmp_path / "c" / "smi")
    assert tool.find("smi", places[:3], f"relative::{tmp_path / 'b'}") == str(tmp_path / "b" / "smi")
    assert tool.find("smi", places[:3], "") == ""


def test_a_relative_folder_on_the_path_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smi").write_text("", encoding="ascii")
    (tmp_path / "smi").chmod(0o755)
    assert tool.find("smi", ["."], ":.") == ""


def test_a_run_leaves_no_descriptor_open(script):
    path = script("echo x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        tool.run([path], 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
