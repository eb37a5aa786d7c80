"""`modelyard accept` when something goes wrong around it: signals, a second run, a kill, full disks, damaged files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from accepting import Accept, stopped, wanted
from cases import always
from harness import alive, until
from web import Web


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_run_that_is_ended_ends_ansible_cleanly_and_leaves_a_record(accept: Accept, number: int) -> None:
    with Web(200) as web, stopped(accept.site, 0):
        accept.configure(tell=[{"kind": "webhook", "url": web.url}])
        process = accept.begin()
        until(
            lambda: (accept.state / "lock.json").exists() and "ansible" in (accept.state / "lock.json").read_text(),
            20,
            "it plays",
        )
        ansible = json.loads((accept.state / "lock.json").read_text(encoding="utf-8"))["ansible"]["pid"]
        time.sleep(2)
        began = time.monotonic()
        os.kill(process.pid, number)
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 5, said + complaint
        assert time.monotonic() - began < 25
        assert web.heard == [], "whoever ended it knows"
    assert f"the run was ended by {number.name}" in said
    assert accept.latest["answer"] == "error"
    assert not alive(ansible)
    assert not (accept.state / "lock.json").exists()
    left = subprocess.run(["pgrep", "-f", str(accept.folder)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []


def test_a_second_run_at_the_same_time_asks_nothing(accept: Accept) -> None:
    process = accept.begin()
    until((accept.state / "lock.json").exists, 20, "it runs")
    done = accept.run()
    assert done.returncode == 6, done.stdout + done.stderr
    assert f"another run is under way in {accept.state}: pid {process.pid} of " in done.stderr
    assert process.wait(60) == 0
    assert len(list((accept.state / "runs").glob("*.json"))) == 1


def test_a_run_that_was_killed_stands_in_nobodys_way_once_its_ansible_has_ended(accept: Accept) -> None:
    process = accept.begin()
    lock = accept.state / "lock.json"
    until(lambda: lock.exists() and "ansible" in lock.read_text(), 20, "it plays")
    ansible = json.loads(lock.read_text(encoding="utf-8"))["ansible"]["pid"]
    process.kill()
    process.wait()
    until(lambda: not alive(ansible), 90, "without a reader ansible-playbook ends by itself")
    done = accept.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (accept.state / "work").exists()


def test_on_a_full_disk_the_verdict_is_told_all_the_same(accept: Accept) -> None:
    accept.state.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(accept.state)], check=False).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        with Web(200) as web, wanted(accept.site, top_logprobs=400):
            accept.configure(tell=[{"kind": "webhook", "url": web.url}])
            (accept.state / "runs").mkdir()
            (accept.state / "reserve").write_bytes(bytes(2**18))
            with contextlib.suppress(OSError):
                (accept.state / "ballast").write_bytes(bytes(4 * 2**20))
            done = accept.run()
            assert done.returncode == 1, done.stdout + done.stderr
            assert "logprobs" in done.stdout
            assert "No space left on device" in done.stderr
            assert f"the disk of {accept.state} is full" in done.stderr
            assert [message["answer"] for _, message in web.heard] == ["failed"]
            assert not (accept.state / "reserve").exists()
            assert accept.run().returncode == 1
            assert len(web.heard) == 1, "what was told is remembered"
    finally:
        subprocess.run(["umount", str(accept.state)], check=True)
    assert not list(Path("/dev/shm").glob("modelyard-*"))


def test_a_state_folder_that_is_not_writable_is_said_before_anything_is_asked(accept: Accept) -> None:
    blocked = accept.folder / "file"
    blocked.write_text("no folder", encoding="utf-8")
    accept.state = blocked / "state"
    done = accept.run()
    assert done.returncode == 5
    assert "the state cannot be kept" in done.stderr
    assert "--state" in done.stderr


@pytest.mark.further
def test_damaged_files_cost_no_verdict_and_are_named(accept: Accept) -> None:
    assert accept.run().returncode == 0
    first = accept.latest["id"]
    (accept.state / "history.json").write_text("{", encoding="utf-8")
    (accept.state / "told.json").write_text('{"subjects": {"*": 1}}', encoding="utf-8")
    (accept.state / "runs/20200101T000000Z.json").write_bytes(b"\0" * 100)
    done = accept.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20200101T000000Z.json is damaged and not used" in done.stderr
    assert "told.json was damaged" in done.stderr
    assert (accept.latest["before"], accept.latest["changed_since"]) == ("accepted", first)
    assert [entry["id"] for entry in json.loads((accept.state / "history.json").read_text())["runs"]] == [
        first,
        accept.latest["id"],
    ]


@pytest.mark.parametrize("locale", always(2, ["", "xx_YY.UTF-8", "C", "POSIX", "de_DE.ISO-8859-1"]))
def test_the_locale_of_a_timer_does_not_matter(accept: Accept, locale: str) -> None:
    """Ansible itself refuses all of these but the first."""
    few = {"PYTHONPATH": accept.environment()["PYTHONPATH"], "HOME": str(accept.folder)}
    env = {**few, **({"LC_ALL": locale} if locale else {})}
    words = accept.words("--depth", "quick")
    done = subprocess.run(words, cwd="/", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.further
def test_an_output_that_cannot_be_written_changes_no_exit_status(accept: Accept) -> None:
    with Path("/dev/full").open("wb") as full:
        status = subprocess.run(
            accept.words(), cwd="/", env=accept.environment(), stdout=full, stderr=full, check=False, timeout=60
        ).returncode
    assert status == 0
    assert accept.latest["answer"] == "accepted"
    closed = subprocess.run(["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", *accept.words()], env=accept.environment(), check=False)
    assert closed.returncode == 0
    assert len(list((accept.state / "runs").glob("*.json"))) == 2
