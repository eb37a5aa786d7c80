"""Many small files in one step."""

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import files


def wanted(path, content="text\n", mode="0644", **more):
    return files.File.of({"path": str(path), "content": content, "mode": mode, **more})


def test_what_differs_is_written_with_its_mode_and_folder(tmp_path):
    path = tmp_path / "a/b/run.sh"
    (change,) = files.write([wanted(path, "#!/bin/bash\ntrue\n", "0755", shell=True)])
    assert (change["before"], change["after"], change["mode_before"]) == (None, "#!/bin/bash\ntrue\n", None)
    assert path.read_text() == "#!/bin/bash\ntrue\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_what_is_there_already_is_left_alone(tmp_path):
    file = wanted(tmp_path / "a")
    files.write([file])
    before = (tmp_path / "a").stat()
    assert files.write([file]) == []
    assert (tmp_path / "a").stat().st_ino == before.st_ino


@pytest.mark.parametrize("spoil", [lambda p: p.write_text("other"), lambda p: p.chmod(0o600), lambda p: p.unlink()])
def test_a_change_by_hand_is_seen_and_undone(tmp_path, spoil):
    file = wanted(tmp_path / "a")
    files.write([file])
    spoil(tmp_path / "a")
    assert [c["path"] for c in files.changes([file])] == [file.path]
    files.write([file])
    assert files.changes([file]) == []


def test_a_stale_file_is_removed_once(tmp_path):
    (tmp_path / "old").write_text("x")
    gone = files.File.of({"path": str(tmp_path / "old"), "state": "absent"})
    assert [c["after"] for c in files.write([gone])] == [None]
    assert files.write([gone]) == []


def test_a_program_is_written_byte_for_byte_and_once(tmp_path):
    content = bytes(range(256)) * 40
    program = files.File.of({"path": str(tmp_path / "p"), "packed": files.packed(content), "mode": "0755"})
    assert len(files.write([program])) == 1
    assert (tmp_path / "p").read_bytes() == content
    assert files.write([program]) == []


def test_what_stands_in_a_secret_file_is_told_to_nobody(tmp_path):
    (tmp_path / "api_key").write_text("very-secret\n")
    gone = files.File.of({"path": str(tmp_path / "api_key"), "state": "absent", "secret": True})
    assert "very-secret" not in str(files.changes([gone]))
    files.write([gone])
    assert not (tmp_path / "api_key").exists()


def test_a_broken_shell_file_stops_everything_before_the_first_is_written(tmp_path):
    with pytest.raises(files.Failed, match=r"run\.sh would be no valid shell file"):
        files.write([wanted(tmp_path / "a"), wanted(tmp_path / "run.sh", "if true\n", shell=True)])
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_named_and_leaves_no_half_file(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(files.Failed, match="folder cannot be read"):
        files.write([wanted(tmp_path / "folder")])
    (tmp_path / "file").write_text("x")
    with pytest.raises(files.Failed, match="below"):
        files.write([wanted(tmp_path / "file" / "below")])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_is_never_readable_for_longer_than_wanted(tmp_path, monkeypatch):
    seen = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode=0o777: (seen.append(mode), real(path, flags, mode))[1])
    files.write([wanted(tmp_path / "a", mode="0600")])
    assert seen == [0o600]
