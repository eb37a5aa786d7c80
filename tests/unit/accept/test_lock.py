"""One run at a time: who holds the lock, and what a killed owner leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from unit import worlds

from modelyard import files
from modelyard.accept import lock

HOLD = """
import sys, time
from pathlib import Path
from modelyard.accept import lock
with lock.taken(Path(sys.argv[1]), "timer"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that holds the lock of the folder."""
    env = {**os.environ, "PYTHONPATH": str(worlds.ROOT / "src")}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def refused(folder):
    with pytest.raises(lock.Held) as caught, lock.taken(folder, "person"):
        pass
    return str(caught.value)


def test_the_owner_is_named(tmp_path, owner):
    said = refused(tmp_path)
    assert f"another run is under way in {tmp_path}: pid {owner.pid} of " in said
    assert ", since 2" in said


def test_an_owner_that_was_killed_holds_nothing_any_more(tmp_path, owner):
    owner.kill()
    owner.wait()
    assert (tmp_path / lock.FILE).exists()
    with lock.taken(tmp_path, "person") as held:
        assert json.loads((tmp_path / lock.FILE).read_text(encoding="utf-8"))["pid"] == held.holder["pid"] == os.getpid()
    assert not (tmp_path / lock.FILE).exists()


def test_the_ansible_playbook_of_a_killed_owner_counts_while_that_very_process_lives(tmp_path):
    child = subprocess.Popen(["sleep", "60"])
    start = lock.started(child.pid)
    left = {"pid": 999999, "by": "llm on control", "since": "then", "ansible": {"pid": child.pid, "start": start}}
    files.write_json(tmp_path / lock.FILE, left)
    assert f"It was killed, and its ansible-playbook (pid {child.pid}) lives on" in refused(tmp_path)
    files.write_json(tmp_path / lock.FILE, {**left, "ansible": {"pid": child.pid, "start": start - 1}})
    with lock.taken(tmp_path, "person"):
        pass  # the number belongs to another process now
    child.kill()
    files.write_json(tmp_path / lock.FILE, left)
    child.wait()
    with lock.taken(tmp_path, "person"):
        pass


@pytest.mark.parametrize("text", ["{", "[]", '{"ansible": 1}', '{"ansible": {"pid": "x"}}', '{"ansible": {"pid": 1}}', ""])
def test_a_damaged_lock_file_locks_nobody_out(tmp_path, text):
    (tmp_path / lock.FILE).write_text(text, encoding="utf-8")
    with lock.taken(tmp_path, "person"):
        assert refused(tmp_path)


def test_a_full_disk_does_not_cost_the_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lock.files, "write_json", full)
    with lock.taken(tmp_path, "person"):
        assert "pid ?" in refused(tmp_path)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(lock.Unusable, match="cannot be opened"), lock.taken(tmp_path / "absent", "person"):
        pass
