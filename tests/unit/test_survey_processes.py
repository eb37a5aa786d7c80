"""What the survey says about processes: on folders that look like /proc, and on real processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import harness
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import cgroup, opened, proc, sockets
from ansible_collections.modelyard.core.plugins.module_utils.survey import processes
from harness import until
from hypothesis import given
from hypothesis import strategies as st
from unit import fake_proc, worlds

HEX = "0123456789abcdef" * 4
KEYS = {
    *("pid", "start", "ppid", "user", "uid", "state", "comm", "command", "threads", "thread_count", "cgroup", "unit"),
    *("container", "marker", "cwd", "devices", "stack", "other_namespace"),
}


def add(root, pid, comm="python", threads=1, uid=None, **more):
    """One process with as many threads as are said."""
    fake_proc.add(root, pid, comm=comm, **more)
    stat = root / str(pid) / "stat"
    stat.write_text(stat.read_text().replace(" 20 0 3 0 ", f" 20 0 {threads} 0 "))
    add_thread(root, pid, pid, comm, more.get("state", "S"))


def add_thread(root, pid, tid, comm="worker", state="S", stack=None, start=100, **more):
    """One thread; with `more` it shows command line, files and so on as a process does."""
    folder = root / str(pid) / "task"
    if more:
        fake_proc.add(folder, tid, comm=comm, state=state, start=start, **more)
    else:
        (folder / str(tid)).mkdir(parents=True, exist_ok=True)
        (folder / str(tid) / "stat").write_text(fake_proc.stat_line(tid, comm, state, start=start))
    if stack is not None:
        (folder / str(tid) / "stack").write_text("".join(f"[<0>] {line}\n" for line in stack))


def set_stack(root, pid, *functions):
    text = "".join(f"[<0>] {function}\n" for function in functions)
    (root / str(pid) / "stack").write_text(text)
    (root / str(pid) / "task" / str(pid) / "stack").write_text(text)


def kernel(root):
    """The parent of the kernel's threads."""
    add(root, 2, comm="kthreadd", ppid=0, command=())


def describe(root, pid, *cards, **more):
    table = proc.processes(root)
    return processes.describe(table[pid], opened.handles(table, root), set(cards), proc_root=root, **more)


@contextlib.contextmanager
def python(code, **more):
    """A real Python process that has printed a line and waits for one; it is let go at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, **more
    )
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.communicate("\n", timeout=20)


# -- descriptors ----------------------------------------------------------------------------------------------------


def test_every_descriptor_is_read_once_and_answers_all_questions(tmp_path, monkeypatch):
    add(tmp_path, 7, files=("/dev/nvidia0", "/dev/nvidia0", "/dev/shm/psm_1 (deleted)", "socket:[11]", "socket:[]"))
    add(tmp_path, 9, files=("socket:[11]", "socket:[12]", "/tmp/a (deleted) b"))
    read = Counter()
    readlink = os.readlink

    def counted(name, *, dir_fd):
        read[f"{readlink(f'/proc/self/fd/{dir_fd}')}/{name}"] += 1
        return readlink(name, dir_fd=dir_fd)

    table = proc.processes(tmp_path)
    monkeypatch.setattr(os, "readlink", counted)
    seen = opened.handles(table, tmp_path)
    assert (len(read), set(read.values())) == (8, {1})
    assert seen == opened.Handles(
        {
            7: frozenset({"/dev/nvidia0", "/dev/shm/psm_1", "socket:[11]", "socket:[]"}),
            9: frozenset({"socket:[11]", "socket:[12]", "/tmp/a (deleted) b"}),
        },
        set(),
    )
    assert sockets.socket_owners(seen) == {11: 7, 12: 9}
    assert processes.holders(["/dev/nvidia0", "/dev/nvidia1"], seen) == {"/dev/nvidia0": [7], "/dev/nvidia1": []}
    assert sum(read.values()) == 8


def test_who_cannot_hold_a_file_is_not_looked_into(tmp_path):
    kernel(tmp_path)
    add(tmp_path, 3, comm="kworker/0:0", ppid=2, command=())
    add(tmp_path, 7, state="Z")
    for pid in (3, 7):
        shutil.rmtree(tmp_path / str(pid) / "fd")
        (tmp_path / str(pid) / "fd").write_text("no folder")
    assert opened.handles(proc.processes(tmp_path), tmp_path) == opened.Handles(
        {2: frozenset(), 3: frozenset(), 7: frozenset()}, set()
    )


def test_process_2_of_a_container_is_no_kernel_thread(tmp_path):
    add(tmp_path, 2, comm="python", files=("/dev/nvidia0",))
    add(tmp_path, 9, ppid=2, files=("/dev/nvidia0",))
    table = proc.processes(tmp_path)
    assert processes.holders(["/dev/nvidia0"], opened.handles(table, tmp_path)) == {"/dev/nvidia0": [2, 9]}


@pytest.mark.parametrize("forbidden", ["list", "read"])
def test_descriptors_that_may_not_be_listed_or_read_are_denied(tmp_path, monkeypatch, forbidden):
    add(tmp_path, 7, files=("/dev/nvidia0",))
    add(tmp_path, 8, files=("/dev/nvidia0",))
    function = {"list": "open", "read": "readlink"}[forbidden]
    real, readlink = getattr(os, function), os.readlink

    def refuse(path, *more, **named):
        folder = readlink(f"/proc/self/fd/{named['dir_fd']}") if "dir_fd" in named else path
        if str(folder).endswith("/7/fd"):
            raise PermissionError(13, "Permission denied")
        return real(path, *more, **named)

    monkeypatch.setattr(os, function, refuse)
    assert opened.handles(proc.processes(tmp_path), tmp_path) == opened.Handles({8: frozenset({"/dev/nvidia0"})}, {7})


def test_a_process_that_is_gone_has_no_descriptors_and_is_not_denied(tmp_path):
    add(tmp_path, 7)
    table = proc.processes(tmp_path)
    shutil.rmtree(tmp_path / "7")
    assert opened.handles(table, tmp_path) == opened.Handles({7: frozenset()}, set())
    assert proc.threads(7, tmp_path) == []


# -- control groups, stacks, threads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/vllm.service\n", "/system.slice/vllm.service"),
        ("9:name=systemd:/user.slice/a.scope\n4:memory:/much/longer/than/the/other/one\n", "/user.slice/a.scope"),
        ("4:memory:/batch/job7\n1:cpu:/\n", "/batch/job7"),
        ("9:name=systemd:/\n4:memory:/batch/job7\n0::/\n", "/batch/job7"),
        (f"9:name=systemd:/docker/{HEX}\n0::/system.slice/docker.service\n", f"/docker/{HEX}"),
        ("0::/a:b/c.service\n", "/a:b/c.service"),
        ("0::/\n", "/"),
        ("", ""),
        ("garbage", ""),
    ],
)
def test_the_cgroup_that_says_most_is_taken(tmp_path, text, path):
    add(tmp_path, 7)
    (tmp_path / "7/cgroup").write_text(text)
    assert cgroup.path_of(7, tmp_path) == path


@pytest.mark.parametrize(
    ("path", "unit", "container"),
    [
        ("/system.slice/vllm-a.service", "vllm-a.service", ""),
        ("/system.slice/vllm-a.service/workers", "vllm-a.service", ""),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/tiny.service", "tiny.service", ""),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope", ""),
        (f"/system.slice/docker-{HEX}.scope", f"docker-{HEX}.scope", HEX[:12]),
        (f"/docker/{HEX}", "", HEX[:12]),
        (f"/machine.slice/libpod-{HEX}.scope/container", f"libpod-{HEX}.scope", HEX[:12]),
        (f"/machine.slice/libpod-conmon-{HEX}.scope", f"libpod-conmon-{HEX}.scope", ""),
        (f"/user.slice/user-1.slice/user@1.service/user.slice/libpod-{HEX}.scope", f"libpod-{HEX}.scope", HEX[:12]),
        (f"/kubepods/burstable/pod8f2a4c1e-1111-2222-3333-444455556666/{HEX}", "", HEX[:12]),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod8f2a4c1e_1111_2222_3333_444455556666.slice"
            f"/cri-containerd-{HEX}.scope",
            f"cri-containerd-{HEX}.scope",
            HEX[:12],
        ),
        (f"/kubepods-pod1.slice:cri-containerd:{HEX}", "", HEX[:12]),
        ("/kubepods/besteffort/pod8f2a4c1e-1111-2222-3333-444455556666", "", "pod8f2a4c1e-1111-2222-3333-444455556666"),
        ("/lxc.payload.gpu-box/system.slice/ssh.service", "ssh.service", "gpu-box"),
        ("/lxc.payload/gpu-box/init.scope", "init.scope", "gpu-box"),
        ("/lxc/101/ns", "", "101"),
        ("/lxc.monitor.gpu-box", "", ""),
        (f"/lxc/101/docker/{HEX}", "", "101"),
        (r"/machine.slice/machine-my\x2dbox.scope/payload", r"machine-my\x2dbox.scope", "my-box"),
        ("/machine.slice/systemd-nspawn@box.service/payload", "systemd-nspawn@box.service", "box"),
        (f"/jobs/{HEX[:32]}", "", ""),
        (f"/jobs/{HEX}0", "", ""),
        ("/", "", ""),
        ("", "", ""),
    ],
)
def test_unit_and_container_are_read_from_the_cgroup(path, unit, container):
    assert (cgroup.unit_of(path), cgroup.container_of(path)) == (unit, container)


@given(st.text(max_size=60))
def test_any_cgroup_path_gives_an_answer(path):
    assert isinstance(cgroup.unit_of(path), str)
    assert isinstance(cgroup.container_of(path), str)


def test_a_stack_is_its_functions_and_may_be_forbidden_or_empty(tmp_path):
    add(tmp_path, 7)
    assert proc.stack(7, tmp_path) is None
    set_stack(tmp_path, 7)
    assert proc.stack(7, tmp_path) == []
    (tmp_path / "7/stack").write_text(
        "[<0>] uvm_spin_loop+0x70/0x110 [nvidia_uvm]\n[<ffffffff81>] do_syscall_64+0x71/0x280\n[<0>] 0xffffffffffffffff\n"
    )
    assert proc.stack(7, tmp_path) == ["uvm_spin_loop", "do_syscall_64", "0xffffffffffffffff"]
    assert proc.frames(7, tmp_path)[0] == ("uvm_spin_loop", "nvidia_uvm")


def test_threads_are_sorted_by_number_and_may_be_limited(tmp_path):
    add(tmp_path, 7, comm="main")
    for tid in (100, 20):
        add_thread(tmp_path, 7, tid, comm=f"a) Z {tid}")
    (tmp_path / "7/task/21").mkdir()  # ended between listing and reading
    assert proc.threads(7, tmp_path) == [(7, "S", "main"), (20, "S", "a) Z 20"), (100, "S", "a) Z 100")]
    assert proc.threads(7, tmp_path, limit=2) == [(7, "S", "main"), (20, "S", "a) Z 20")]


def test_the_real_namespaces_of_this_process_have_ids():
    assert proc.namespace("self", "pid").startswith("pid:[")
    assert proc.namespace(os.getpid(), "mnt") == proc.mounts("self")
    assert proc.namespace("self", "nothing") is None


# -- devices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sysroot", "targets", "devices"),
    [
        ("/", ("/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap2", "/dev/null"), 3),
        ("/", ("/dev/kfd", "/dev/mkfd", "/dev/dri/renderD128", "/dev/davinci3", "/dev/davinci_manager"), 5),
        ("/", ("/dev/dri/card0", "/home/dev/kfd", "/dev/kfd2", "socket:[1]"), 0),
        ("{root}", ("{root}/dev/known", "/dev/known", "{root}2/dev/known", "{root}/dev/kfd"), 1),
        ("{root}/", ("{root}/dev/known",), 1),
        ("/", ("/dev/known",), 1),
    ],
)
def test_devices_are_those_below_the_sysroot(tmp_path, sysroot, targets, devices):
    root = tmp_path / "root"
    root.mkdir()
    add(tmp_path, 7, files=tuple(t.format(root=root) for t in targets))
    shown = describe(tmp_path, 7, "/dev/known", sysroot=sysroot.format(root=root))["devices"]
    assert len(shown) == devices
    assert all(path.startswith("/dev/") for path in shown)
    table = proc.processes(tmp_path)
    held = processes.device_holders(opened.handles(table, tmp_path), {"/dev/known"}, sysroot.format(root=root))
    assert held == ([7] if devices else [])


def test_a_sysroot_behind_a_link_is_the_folder_that_it_names(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    add(tmp_path, 7, files=(f"{tmp_path}/real/dev/nvidia0",))
    seen = opened.handles(proc.processes(tmp_path), tmp_path)
    assert processes.holders(["/dev/nvidia0"], seen, str(tmp_path / "link")) == {"/dev/nvidia0": [7]}


def test_a_real_holder_of_a_device_file_is_found_also_when_the_file_was_removed(tmp_path):
    device = tmp_path / "dev/nvidia0"
    device.parent.mkdir()
    device.write_text("")
    with python(f"f = open({str(device)!r}); print('open'); input()") as (child, _):
        table = proc.processes()
        assert processes.holders(["/dev/nvidia0"], opened.handles(table), str(tmp_path)) == {"/dev/nvidia0": [child.pid]}
        device.unlink()
        seen = opened.handles(table)
        shown = processes.describe(table[child.pid], seen, {"/dev/nvidia0"}, str(tmp_path))
    assert shown["devices"] == ["/dev/nvidia0"]
    assert shown["pid"] in processes.device_holders(seen, {"/dev/nvidia0"}, str(tmp_path))


# -- zombies --------------------------------------------------------------------------------------------------------


ZOMBIE = """
import os
pid = os.fork()
if not pid: os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(pid)
input()
os.wait()
"""


def test_a_real_zombie_is_found_and_described():
    with python(ZOMBIE) as (parent, said):
        pid = int(said)
        table = proc.processes()
        seen = opened.handles(table)
        assert pid in processes.zombies(table)
        assert parent.pid not in processes.zombies(table)
        assert not proc.half_ended(table[pid])
        assert seen.targets[pid] == frozenset()
        shown = processes.describe(table[pid], seen, set())
    assert set(shown) == KEYS
    assert (shown["state"], shown["ppid"], shown["thread_count"]) == ("Z", parent.pid, 1)
    assert shown["command"].startswith("[")
    assert (shown["cwd"], shown["marker"], shown["devices"], shown["stack"]) == ("", "", [], None)
    assert [thread["state"] for thread in shown["threads"]] == ["Z"]
    assert json.loads(json.dumps(shown)) == shown


HALF_ENDED = """
import ctypes, sys, threading, time
held = open(sys.argv[1])
ctypes.CDLL(None).prctl(15, b"VLLM::Worker_TP", 0, 0, 0)
def stay():
    while True: time.sleep(60)
threading.Thread(target=stay).start()
print("begun", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def half_ended(tmp_path):
    """A real process whose leader has ended while a thread lives on and holds a file."""
    device = tmp_path / "dev/nvidia0"
    device.parent.mkdir()
    device.write_text("")
    child = subprocess.Popen(
        [sys.executable, "-c", HALF_ENDED, str(device)],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={"MODELYARD_SERVICE": "tiny"},
        start_new_session=True,
    )
    try:
        child.stdout.readline()
        harness.until(lambda: proc.read(child.pid).state == "Z", 10, "the leader has ended")
        yield child.pid
    finally:
        child.kill()
        child.communicate()


def test_a_process_whose_leader_has_ended_still_shows_what_it_holds(tmp_path, half_ended):
    table = proc.processes()
    process = table[half_ended]
    assert (process.state, process.threads, proc.half_ended(process)) == ("Z", 2, True)
    # The kernel shows nothing under its own number, which is why one of its threads is asked.
    assert list(opened.open_files(half_ended)) == []
    assert proc.cwd(half_ended) is None
    seen = opened.handles(table)
    assert processes.holders(["/dev/nvidia0"], seen, str(tmp_path)) == {"/dev/nvidia0": [half_ended]}
    assert half_ended in processes.zombies(table)
    shown = processes.describe(process, seen, {"/dev/nvidia0"}, str(tmp_path))
    assert shown["devices"] == ["/dev/nvidia0"]
    assert shown["command"].startswith(sys.executable)
    assert (shown["comm"], shown["marker"], shown["cwd"]) == ("VLLM::Worker_TP", "tiny", str(tmp_path))
    assert (shown["state"], shown["thread_count"]) == ("Z", 2)
    assert [thread["state"] for thread in shown["threads"]] == ["S", "Z"]
    assert shown["threads"][1]["tid"] == half_ended
    if os.geteuid() == 0 and Path("/proc/self/stack").exists():
        assert any("nanosleep" in function for function in shown["stack"])
    else:
        assert shown["stack"] is None


def test_a_half_ended_process_whose_last_thread_just_ended_breaks_nothing(tmp_path):
    add(tmp_path, 7, state="Z", threads=2)
    shown = describe(tmp_path, 7)
    assert ([t["state"] for t in shown["threads"]], shown["devices"]) == (["Z"], [])


# -- stuck ----------------------------------------------------------------------------------------------------------


def test_stuck_is_who_waits_in_d_twice(tmp_path):
    for pid in (7, 8, 9, 10, 11):
        add(tmp_path, pid, state="D")
    add(tmp_path, 12)

    def later():
        set_state(tmp_path, 8, "S")
        set_state(tmp_path, 9, "D", start=101)  # its number was given to another process
        shutil.rmtree(tmp_path / "10")
        set_state(tmp_path, 12, "D")

    table = proc.processes(tmp_path)
    assert processes.stuck(table, later, proc_root=tmp_path) == [7, 11]


def set_state(root, pid, state, start=100):
    line = fake_proc.stat_line(pid, "python", state, start=start)
    (root / str(pid) / "stat").write_text(line)
    (root / str(pid) / "task" / str(pid) / "stat").write_text(line)


def test_nobody_waits_when_the_first_look_shows_nothing(tmp_path):
    add(tmp_path, 7)
    add(tmp_path, 8, state="R")
    add(tmp_path, 9, state="Z", threads=2)

    def never():
        raise AssertionError("waited for nothing")

    assert processes.stuck(proc.processes(tmp_path), never, proc_root=tmp_path) == []


@pytest.mark.parametrize(
    ("functions", "hangs"),
    [
        (("uvm_spin_loop+0x70/0x110 [nvidia_uvm]", "do_syscall_64+0x7/0x2"), True),
        (("_nv012345rm+0x7/0x2 [nvidia]",), True),
        (("something+0x7/0x2 [hycu]",), True),
        (("os_acquire_mutex+0x7/0x2",), True),
        (("amdgpu_fence_wait+0x1/0x2",), True),
        (("svm_range_restore+0x1/0x2", "kfd_ioctl+0x1/0x2"), True),
        (("inv_sensor_read+0x1/0x2", "do_syscall_64+0x7/0x2"), False),
        ((), False),
        (None, False),
    ],
)
def test_running_counts_only_with_a_driver_in_the_stack(tmp_path, functions, hangs):
    add(tmp_path, 7, state="R")
    if functions is not None:
        set_stack(tmp_path, 7, *functions)
    assert processes.stuck(proc.processes(tmp_path), lambda: None, proc_root=tmp_path) == ([7] if hangs else [])


def test_running_in_the_driver_must_be_seen_twice(tmp_path):
    add(tmp_path, 7, state="R")
    add(tmp_path, 8, state="R")
    for pid in (7, 8):
        set_stack(tmp_path, pid, "nvidia_ioctl+0x1/0x2")

    def later():
        set_stack(tmp_path, 7, "do_futex+0x1/0x2")
        set_state(tmp_path, 8, "D")

    assert processes.stuck(proc.processes(tmp_path), later, proc_root=tmp_path) == [8]


def test_threads_of_the_kernel_are_stuck_only_in_a_driver(tmp_path):
    kernel(tmp_path)
    for pid, function in ((3, "worker_thread+0x1/0x2"), (4, "amdgpu_device_gpu_recover+0x1/0x2 [amdgpu]")):
        add(tmp_path, pid, comm="kworker", state="D", ppid=2, command=())
        set_stack(tmp_path, pid, function)
    add(tmp_path, 5, comm="kworker", state="D", ppid=2, command=())  # stack not readable
    assert processes.stuck(proc.processes(tmp_path), lambda: None, proc_root=tmp_path) == [4]


def test_a_hanging_thread_is_seen_where_the_leader_has_ended_and_in_watched_processes(tmp_path):
    add(tmp_path, 7, state="Z", threads=2)
    for pid in (8, 9):
        add(tmp_path, pid, threads=30)
    for pid in (7, 8, 9):
        add_thread(tmp_path, pid, pid * 100, state="D", stack=["nvidia_ioctl+0x1/0x2"])
    for tid in range(810, 830):
        add_thread(tmp_path, 8, tid)
    add_thread(tmp_path, 8, 899, state="D", stack=["os_acquire_mutex+0x1/0x2"])
    (tmp_path / "8/task/800/stat").write_text(fake_proc.stat_line(800, "w", "S"))
    table = proc.processes(tmp_path)
    assert processes.stuck(table, lambda: None, proc_root=tmp_path) == [7]
    assert processes.stuck(table, lambda: None, [8], tmp_path) == [7, 8]
    # The thread that hangs comes first, also beyond the sixteenth.
    shown = describe(tmp_path, 8, hung=[8])
    assert (shown["threads"][0]["tid"], shown["stack"], len(shown["threads"])) == (899, ["os_acquire_mutex"], 16)
    assert describe(tmp_path, 7)["stack"] == ["nvidia_ioctl"]


VFORK = """
import ctypes
libc = ctypes.CDLL(None)
print("begun", flush=True)
libc.vfork()
while True: libc.pause()
"""


def test_a_real_process_that_waits_in_d_is_stuck():
    # The parent of vfork waits in D, but can be killed, until its child has begun another program.
    child = subprocess.Popen([sys.executable, "-c", VFORK], stdout=subprocess.PIPE, start_new_session=True)
    try:
        child.stdout.readline()
        harness.until(lambda: proc.read(child.pid).state == "D", 10, "the parent waits in D")
        table = proc.processes()
        hung = processes.stuck({child.pid: table[child.pid], os.getpid(): table[os.getpid()]})
        assert hung == [child.pid]
        shown = processes.describe(table[child.pid], opened.handles(table), set(), hung=hung)
    finally:
        harness.end(child)
    assert shown["state"] == "D"
    assert shown["threads"][0]["state"] == "D"
    if os.geteuid() == 0 and Path("/proc/self/stack").exists():
        assert shown["stack"]
        assert shown["command"].startswith(sys.executable)
    else:
        assert (shown["stack"], shown["command"]) == (None, f"[{shown['comm']}]")


@pytest.mark.parametrize(
    ("functions", "command"),
    [
        (("nvidia_ioctl+0x1/0x2",), "python -m vllm"),
        (("rwsem_down_read_slowpath+0x1/0x2",), "[VLLM::Worker]"),
        (None, "[VLLM::Worker]"),
    ],
)
def test_the_memory_of_a_stuck_process_is_read_only_when_that_cannot_block(tmp_path, functions, command):
    add(tmp_path, 7, comm="VLLM::Worker", state="D", command=("python", "-m", "vllm"), environ={"MODELYARD_SERVICE": "tiny"})
    if functions:
        set_stack(tmp_path, 7, *functions)
    shown = describe(tmp_path, 7, hung=[7])
    assert shown["command"] == command
    assert shown["marker"] == ("tiny" if command.startswith("python") else "")
    assert describe(tmp_path, 7)["command"] == "python -m vllm"


# -- description ----------------------------------------------------------------------------------------------------


def test_a_process_is_described_in_plain_data(tmp_path):
    add(
        tmp_path,
        7,
        comm="VLLM::EngineCor",
        command=("vllm", "serve", "--api-key", "geheim", "x" * 400),
        environ={"MODELYARD_SERVICE": "tiny"},
        cwd="/srv (deleted)",
        files=("/dev/nvidia1", "/dev/nvidia0", "/dev/null"),
        ppid=5,
        start=77,
    )
    (tmp_path / "7/cgroup").write_text(f"0::/machine.slice/libpod-{HEX}.scope\n")
    shown = describe(tmp_path, 7)
    assert set(shown) == KEYS
    assert len(shown.pop("command")) == 300
    assert shown == {
        "pid": 7,
        "start": 77,
        "ppid": 5,
        "user": proc.user_name(os.geteuid()),
        "uid": os.geteuid(),
        "state": "S",
        "comm": "VLLM::EngineCor",
        "threads": [{"tid": 7, "state": "S", "comm": "VLLM::EngineCor"}],
        "thread_count": 1,
        "cgroup": f"/machine.slice/libpod-{HEX}.scope",
        "unit": f"libpod-{HEX}.scope",
        "container": HEX[:12],
        "marker": "tiny",
        "cwd": "/srv",
        "devices": ["/dev/nvidia0", "/dev/nvidia1"],
        "stack": None,
        "other_namespace": True,
    }


def test_secrets_in_a_command_are_masked(tmp_path):
    add(tmp_path, 7, command=("vllm", "--api-key", "geheim"))
    assert describe(tmp_path, 7)["command"] == "vllm --api-key ***"


def test_what_may_not_be_read_is_none_and_not_empty(tmp_path):
    add(tmp_path, 7, files=("/dev/nvidia0",))
    table = proc.processes(tmp_path)
    assert processes.describe(table[7], opened.Handles({}, {7}), set(), proc_root=tmp_path)["devices"] is None
    assert processes.describe(table[7], opened.Handles({}, set()), set(), proc_root=tmp_path)["devices"] == []


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "other"),
    [
        ({"pid": "pid:[1]", "mnt": "mnt:[1]"}, {"pid": "pid:[1]", "mnt": "mnt:[1]"}, {}, False),
        ({"pid": "pid:[1]", "mnt": "mnt:[1]"}, {"pid": "pid:[2]", "mnt": "mnt:[1]"}, {}, True),
        ({"pid": "pid:[1]", "mnt": "mnt:[1]"}, {"pid": "pid:[1]", "mnt": "mnt:[2]"}, {}, True),
        ({"pid": "pid:[1]", "mnt": "mnt:[1]"}, {}, {}, False),
        ({"pid": "pid:[1]", "mnt": "mnt:[1]"}, {}, {"status": "Name:\tx\nNSpid:\t7\t1\n"}, True),
        ({"pid": "pid:[1]", "mnt": "mnt:[1]"}, {}, {"status": "Name:\tx\nNSpid:\t7\n"}, False),
        ({}, {}, {"cgroup": f"0::/docker/{HEX}\n"}, True),
    ],
    ids=["same", "other pids", "other mounts", "not readable", "two numbers", "one number", "container"],
)
def test_another_namespace_is_seen_by_links_numbers_or_cgroup(tmp_path, ours, theirs, more, other):
    add(tmp_path, 7)
    for folder, links in ((tmp_path / "self/ns", ours), (tmp_path / "7/ns", theirs)):
        folder.mkdir(parents=True)
        for kind, target in links.items():
            (folder / kind).symlink_to(target)
    for name, text in more.items():
        (tmp_path / "7" / name).write_text(text)
    assert describe(tmp_path, 7)["other_namespace"] is other


def test_inside_a_container_its_other_processes_are_at_home(tmp_path):
    for pid in (7, os.getpid()):
        add(tmp_path, pid)
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/docker/{HEX}\n")
    shown = describe(tmp_path, 7)
    assert (shown["container"], shown["other_namespace"]) == (HEX[:12], False)


def test_a_real_process_in_another_session_is_at_home_and_one_with_other_mounts_is_not(tmp_path):
    with python("print('begun'); input()") as (child, _):
        until(lambda: proc.read(child.pid).state == "S", 10, "it waits for input")
        table = proc.processes()
        assert table[child.pid].sid == child.pid
        shown = processes.describe(table[child.pid], opened.handles(table), set())
    assert (shown["other_namespace"], shown["cwd"], shown["state"]) == (False, str(Path.cwd()), "S")
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not make a mount namespace")
    device = tmp_path / "dev/nvidia0"
    device.parent.mkdir()
    device.write_text("")
    code = f"f = open({str(device)!r}); print('begun', flush=True); input()"
    child = subprocess.Popen(
        ["unshare", "--mount", sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        child.stdout.readline()
        table = proc.processes()
        seen = opened.handles(table)
        shown = processes.describe(table[child.pid], seen, {"/dev/nvidia0"}, str(tmp_path))
        assert processes.holders(["/dev/nvidia0"], seen, str(tmp_path)) == {"/dev/nvidia0": [child.pid]}
    finally:
        harness.end(child)
    assert (shown["other_namespace"], shown["devices"]) == (True, ["/dev/nvidia0"])


def test_the_pids_of_all_groups_that_exist_are_of_interest_once():
    table = {pid: proc.Process(pid, 1, 0, 0, "S", 0, "", 0, 1) for pid in (3, 4, 5)}
    assert processes.interesting(table, [5, 3], (3, None, 99), {4}, []) == [3, 4, 5]
    assert processes.interesting(table) == []


# -- what could not be seen -----------------------------------------------------------------------------------------


def table_of(owners):
    return {pid: proc.Process(pid, 1, 0, 0, "S", 0, "", uid, 1) for pid, uid in owners.items()}


@pytest.mark.parametrize(
    ("owners", "denied", "said"),
    [
        ({1: 0, 7: 5}, {}, []),
        ({1: 0, 7: 6}, {7}, ["open files of 1 process of 1 other user"]),
        ({1: 0, 7: 6, 8: 6}, {1, 7, 8}, ["open files of 3 processes of 2 other users"]),
        ({1: 0, 7: 5}, {7}, ["open files of 1 process of this user (5), which the kernel does not show"]),
        ({7: 5}, {}, ["processes of other users: /proc hides them (mount option hidepid)"]),
    ],
)
def test_what_could_not_be_read_is_said(tmp_path, owners, denied, said, monkeypatch):
    monkeypatch.setattr(proc, "user_name", str)
    assert processes.not_readable(opened.Handles({}, set(denied)), table_of(owners), 5, tmp_path) == said


def test_a_container_with_numbers_of_its_own_says_so(tmp_path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532000]")
    table = table_of({1: 0})
    assert processes.not_readable(opened.Handles({}, set()), table, 0, tmp_path) == [
        "processes outside of this container: it has process numbers of its own"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as another user")
def test_a_user_without_rights_gets_no_exception_and_no_false_answer(tmp_path):
    tmp_path.chmod(0o755)
    code = (
        "import json, os\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.survey import processes\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "table = proc.processes(); seen = opened.handles(table); other = os.getppid()\n"
        "print(json.dumps({'denied': other in seen.denied, 'own': os.getpid() in seen.targets,\n"
        " 'kernel': any(proc.kernel_thread(table[pid], table) for pid in seen.denied),\n"
        " 'said': processes.not_readable(seen, table), 'other': processes.describe(table[other], seen, [])}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(worlds.ROOT / "collections")},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert (seen["denied"], seen["own"], seen["kernel"]) == (True, True, False)
    assert seen["said"][0].startswith("open files of ")
    assert seen["other"]["pid"] == os.getpid()
    assert (seen["other"]["devices"], seen["other"]["cwd"], seen["other"]["stack"]) == (None, "", None)
    assert seen["other"]["command"] == proc.command(os.getpid())
