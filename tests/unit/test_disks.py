from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import disks
from hypothesis import example, given
from hypothesis import strategies as st


def test_one_entry_for_each_path_with_the_room_of_its_file_system(tmp_path):
    wanted = {str(tmp_path / "models" / "qwen"): ["model qwen3", "downloads"], str(tmp_path): ["home"]}
    first, second = disks.look(wanted)
    usage = shutil.disk_usage(tmp_path)
    assert (first["path"], first["place"], first["purposes"]) == (
        str(tmp_path / "models" / "qwen"),
        str(tmp_path),
        ["model qwen3", "downloads"],
    )
    assert (second["path"], second["place"], second["purposes"]) == (str(tmp_path), str(tmp_path), ["home"])
    for found in (first, second):
        assert found["total_mib"] == usage.total // 2**20
        assert abs(found["free_mib"] - usage.free // 2**20) < 512  # others write meanwhile
        assert found["problem"] == ""


def test_file_systems_of_this_machine():
    shm, proc = disks.look({"/dev/shm/modelyard-none": [], "/proc/none/x": []})
    assert (shm["place"], shm["fs"]) == ("/dev/shm", "tmpfs")
    assert (proc["place"], proc["fs"], proc["total_mib"], proc["free_inodes"]) == ("/proc", "proc", 0, None)


def test_links_are_followed_also_to_what_is_still_to_be_made(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "disk")
    (tmp_path / "later").symlink_to(tmp_path / "disk" / "models")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "file").write_text("x", encoding="ascii")
    names = {"here/a": "disk", "later": "disk", "here": "disk", "file/a": "", "round/a": ""}
    found = disks.look({str(tmp_path / name): [] for name in names})
    assert [f["place"] for f in found] == [str(tmp_path / place).rstrip("/") for place in names.values()]


def room(**other):
    base = {"f_frsize": 4096, "f_blocks": 1000 * 256, "f_bfree": 600 * 256, "f_bavail": 500 * 256, "f_files": 100}
    return SimpleNamespace(**{**base, "f_ffree": 90, "f_favail": 80, "f_flag": 0, **other})


def test_what_only_root_may_use_is_not_free(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: room())
    (found,) = disks.look({str(tmp_path): []})
    assert (found["free_mib"], found["total_mib"], found["free_inodes"], found["read_only"]) == (500, 1000, 80, False)


def test_a_file_system_without_a_count_of_files_and_read_only(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: room(f_files=0, f_favail=0, f_flag=os.ST_RDONLY | os.ST_NOSUID))
    (found,) = disks.look({str(tmp_path): []})
    assert (found["free_inodes"], found["read_only"]) == (None, True)


def test_a_file_system_that_does_not_answer_is_said(tmp_path, monkeypatch):
    def stale(_):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "statvfs", stale)
    (found,) = disks.look({str(tmp_path): ["home"]})
    assert found["problem"] == f"{tmp_path}: Stale file handle"
    assert [found[key] for key in ("free_mib", "total_mib", "free_inodes", "read_only")] == [None] * 4


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_folder_that_may_not_be_looked_into_is_said(tmp_path):
    # Not in tmp_path: pytest closes its own folders to other users.
    locked = Path(tempfile.mkdtemp(prefix="modelyard-locked-", dir="/tmp"))  # mode 0700
    (locked / "inside").mkdir()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            (found,) = disks.look({f"{locked}/inside/models": []})
            os.write(write, f"{found['place']}|{found['problem']}|{found['free_mib'] is not None}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as stream:
        said = stream.read()
    shutil.rmtree(locked)
    assert said == f"{locked}|no right to look into {locked}: {locked}/inside/models may be there, on another file system|True"


def test_a_missing_folder_below_an_open_one_is_no_problem(tmp_path):
    (found,) = disks.look({str(tmp_path / "a" / "b"): []})
    assert found["problem"] == ""


# number parent device root point options fields - kind source options
TABLE = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 8:1 / /data rw shared:2 master:3 - xfs /dev/sda1 rw
31 30 8:2 / /data/my\\040models rw - btrfs /dev/sdb rw
32 30 0:50 / /data/over rw - nfs4 server:/x rw
33 32 0:51 / /data/over rw - tmpfs none rw
40 27 8:9 / /mnt/a rw - ext3 /dev/sdc rw
41 27 0:60 / /mnt rw - fuse.sshfs x:/ rw
a line that is none
50 27 0:61 / /back\\134slash rw - vfat /dev/sdd rw
"""


@pytest.mark.parametrize(
    ("place", "fs"),
    [
        ("/", "ext4"),
        ("/home", "ext4"),
        ("/proc", "proc"),
        ("/procedure", "ext4"),
        ("/data", "xfs"),
        ("/data/x/y", "xfs"),
        ("/database", "ext4"),
        ("/data/my models", "btrfs"),
        ("/data/my models/qwen", "btrfs"),
        ("/data/my", "xfs"),
        ("/data/over/x", "tmpfs"),
        ("/mnt/a", "fuse.sshfs"),
        ("/back\\slash/x", "vfat"),
    ],
)
def test_the_file_system_that_a_place_is_on(tmp_path, place, fs):
    (tmp_path / "mountinfo").write_text(TABLE, encoding="utf-8")
    assert disks.file_system(place, disks.read_mounts(tmp_path / "mountinfo")) == fs


def test_in_a_changed_root_the_mounts_begin_without_a_top(tmp_path):
    (tmp_path / "mountinfo").write_text("31 30 8:2 / /data rw - xfs /dev/sdb rw\n", encoding="utf-8")
    mounts = disks.read_mounts(tmp_path / "mountinfo")
    assert [disks.file_system(place, mounts) for place in ("/data/a", "/home")] == ["xfs", ""]
    assert disks.read_mounts(tmp_path / "none") == []


@given(text=st.text(max_size=200) | st.lists(st.sampled_from([*"12 /\n-\\", " - ", "\\040", "a"])).map("".join))
@example(text="1 1 0 / / rw - ext4 x\n1 1 0 / / rw - ext4 x\n")
@example(text="1 2 0 / / rw - a x\n2 1 0 / / rw - b x\n")
def test_any_table_of_mounts_is_read(text):
    mounts = disks.parse_mounts(text)
    assert disks.file_system("/a", mounts) in {"", *(m.fs for m in mounts)}
