from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from pathlib import Path

import harness
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import machine

FIRST = {
    f"proc/self/ns/{name}": f"->{name}:[{number}]"
    for name, number in (("ipc", 4026531839), ("uts", 4026531838), ("pid", 4026531836))
}
OTHER = {path: target.replace("40265318", "40265329") for path, target in FIRST.items()}


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_text(text, encoding="utf-8")
    return root


CONTAINERS = [
    pytest.param({}, "", id="nothing there"),
    pytest.param({"proc/1/cgroup": "0::/init.scope\n", **FIRST}, "", id="a host"),
    pytest.param({"run/systemd/container": "lxc\n"}, "lxc", id="systemd says it"),
    pytest.param({"run/systemd/container": "wsl\n"}, "", id="WSL is none"),
    pytest.param({"run/.containerenv": "", **OTHER}, "podman", id="podman without root"),
    pytest.param({"run/.containerenv": 'engine="podman-4.3.1"\nname="x"\n', **OTHER}, "podman", id="podman"),
    pytest.param({"run/.containerenv": 'engine="buildah-1.28.2"\n', **OTHER}, "buildah", id="buildah"),
    pytest.param({".dockerenv": "", **OTHER}, "docker", id="docker"),
    pytest.param({".dockerenv": ""}, "docker", id="docker, namespaces not readable"),
    pytest.param(
        {".dockerenv": "", **FIRST, "proc/self/ns/uts": "->uts:[4026532999]"}, "docker", id="docker with the pids of the host"
    ),
    pytest.param({".dockerenv": "", "run/.containerenv": "", **FIRST}, "", id="a machine booted from the files of a container"),
    pytest.param({"proc/1/environ": "A=b\0container=lxc\0"}, "lxc", id="environment of PID 1"),
    pytest.param({"proc/1/environ": "container=\0xcontainer=a\0"}, "", id="empty in the environment of PID 1"),
    pytest.param({"proc/1/cgroup": "4:memory:/docker/0123\n"}, "docker", id="group of docker"),
    pytest.param({"proc/1/cgroup": "1:x:/kubepods/burstable/docker-0123\n"}, "kubernetes", id="group of kubernetes"),
    pytest.param({"proc/1/cgroup": "0::/machine.slice/libpod-0123.scope/container\n"}, "podman", id="group of podman"),
    pytest.param({"proc/1/cgroup": "0::/lxc.payload.web\n"}, "lxc", id="group of lxc"),
    pytest.param({".singularity.d/env": "x", **FIRST}, "apptainer", id="apptainer"),
]


@pytest.mark.parametrize(("files", "kind"), CONTAINERS)
def test_kind_of_container(tmp_path, files, kind):
    assert machine.platform(str(tree(tmp_path, files)))["container"] == kind


def board(vendor, product, flags="fpu hypervisor lm", clocks="tsc acpi_pm"):
    return {
        "sys/class/dmi/id/sys_vendor": f"{vendor}\n",
        "sys/class/dmi/id/product_name": f"{product}\n",
        "proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n" if flags else "processor\t: 0\nFeatures\t: fp asimd\n",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": f"{clocks} \n",
    }


MACHINES = [
    pytest.param(board("Supermicro", "SYS-4029GP", "fpu lm"), "", id="bare metal"),
    pytest.param(board("Amazon EC2", "p4d.24xlarge"), "amazon", id="cloud"),
    pytest.param(board("Amazon EC2", "g4dn.metal", "fpu lm"), "", id="bare metal of a cloud"),
    pytest.param(board("Amazon EC2", "g5g.metal", ""), "", id="bare metal of a cloud, ARM"),
    pytest.param(board("Amazon EC2", "g5g.xlarge", ""), "amazon", id="cloud, ARM"),
    pytest.param(board("QEMU", "Standard PC (Q35 + ICH9, 2009)", clocks="kvm-clock tsc"), "kvm", id="KVM"),
    pytest.param(board("QEMU", "Standard PC (Q35 + ICH9, 2009)"), "qemu", id="QEMU alone, or KVM without its clock"),
    pytest.param(board("QEMU", "QEMU Virtual Machine", ""), "qemu", id="QEMU, ARM"),
    pytest.param(board("OpenStack Foundation", "OpenStack Nova"), "kvm", id="OpenStack"),
    pytest.param(board("Alibaba Cloud", "Alibaba Cloud ECS"), "kvm", id="Alibaba"),
    pytest.param(board("VMware, Inc.", "VMware7,1"), "vmware", id="VMware"),
    pytest.param(board("Microsoft Corporation", "Virtual Machine"), "microsoft", id="Hyper-V"),
    pytest.param(board("innotek GmbH", "VirtualBox"), "oracle", id="VirtualBox"),
    pytest.param(board("Google", "Google Compute Engine"), "google", id="Google"),
    pytest.param(board("", "", clocks="tsc kvm-clock"), "kvm", id="no board"),
    pytest.param(board("Somebody", "Something"), "unknown", id="a hypervisor without a name"),
    pytest.param(board("Somebody", "Something", ""), "", id="ARM, bare metal"),
    pytest.param({}, "", id="nothing readable"),
    pytest.param({"sys/hypervisor/type": "xen\n"}, "xen", id="Xen"),
    pytest.param({"sys/hypervisor/type": "xen\n", "proc/xen/capabilities": "control_d\n"}, "", id="the host under Xen"),
]


@pytest.mark.parametrize(("files", "kind"), MACHINES)
def test_kind_of_virtual_machine(tmp_path, files, kind):
    assert machine.platform(str(tree(tmp_path, files)))["virtual"] == kind


@pytest.mark.parametrize(
    ("release", "files", "expected"),
    [
        ("5.15.153.1-microsoft-standard-WSL2", board("", "", clocks="tsc hyperv_clocksource_tsc_page"), (True, "microsoft", "")),
        ("5.15.153.1-microsoft-standard-WSL2", {"run/systemd/container": "wsl\n"}, (True, "microsoft", "")),
        ("4.4.0-19041-Microsoft", {}, (True, "microsoft", "")),
        ("6.1.0-13-amd64", {}, (False, "", "")),
    ],
)
def test_wsl(tmp_path, release, files, expected):
    found = machine.platform(str(tree(tmp_path, {"proc/sys/kernel/osrelease": f"{release}\n", **files})))
    assert (found["wsl"], found["virtual"], found["container"]) == expected


LASTING = machine.Unreaped(7, threads=1, age_s=60, seen_s=0.06)


@pytest.mark.parametrize(
    ("comm", "zombies", "answer"),
    [
        ("systemd", [], True),
        ("tini", [], True),
        ("sleep", [], None),
        ("", [], None),
        ("sleep", [LASTING], False),
        ("", [LASTING], False),
        ("sleep", [LASTING._replace(threads=3)], None),
        ("sleep", [LASTING._replace(age_s=9)], None),
        ("sleep", [LASTING._replace(seen_s=0.0)], None),
        ("sleep", [LASTING._replace(threads=3), LASTING], False),
        ("systemd", [LASTING], True),
        ("systemd", [LASTING._replace(seen_s=11)], False),
        ("systemd", [LASTING._replace(seen_s=11, threads=2)], True),
    ],
)
def test_does_pid_1_reap(comm, zombies, answer):
    assert machine.reaps(comm, zombies) is answer


def test_what_pid_1_is(tmp_path):
    root = tree(tmp_path, {"proc/1/comm": "sleep\n", "proc/1/cmdline": "sleep\0infinity\0"})
    found = machine.platform(str(root), [LASTING])
    assert (found["pid1"], found["pid1_reaps"]) == ("sleep", False)


@pytest.mark.parametrize(("words", "answer"), [("busybox\0init\0", True), ("busybox\0sleep\0", None), ("", None)])
def test_busybox_reaps_as_init_only(tmp_path, words, answer):
    root = tree(tmp_path, {"proc/1/comm": "busybox\n", "proc/1/cmdline": words})
    assert machine.platform(str(root))["pid1_reaps"] is answer


def process(pid, **other):
    base = {"pid": pid, "ppid": 1, "pgid": pid, "sid": pid, "state": "Z", "start": 1000, "comm": "x", "uid": 0, "threads": 1}
    return proc.Process(**{**base, **other})


def test_only_zombies_of_pid_1_that_were_there_twice_count():
    first = {
        2: process(2),
        3: process(3, ppid=9),
        4: process(4, state="S"),
        5: process(5),
        6: process(6, start=900),
        8: process(8, threads=4),
    }
    second = {2: process(2), 3: process(3, ppid=9), 4: process(4), 6: process(6), 7: process(7), 8: process(8, threads=4)}
    tick = os.sysconf("SC_CLK_TCK")
    found = machine.unreaped(first, second, uptime_s=1000 / tick + 30, between_s=0.05)
    assert found == [machine.Unreaped(2, 1, 30.0, 0.05), machine.Unreaped(8, 4, 30.0, 0.05)]


EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}.get(platform.machine())


def zombie(with_thread):
    pid = os.fork()
    if pid:
        return pid
    try:
        if with_thread:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            ctypes.CDLL(None).syscall(EXIT_OF_ONE_THREAD, 0)
    finally:
        os._exit(0)


@pytest.mark.skipif(EXIT_OF_ONE_THREAD is None, reason="number of the system call is not known here")
@pytest.mark.parametrize(("with_thread", "threads"), [(False, 1), (True, 2)])
def test_the_kernel_tells_a_zombie_that_can_be_reaped_by_its_threads(with_thread, threads):
    pid = zombie(with_thread)
    try:
        harness.until(lambda: proc.read(pid).state == "Z", 10, "a zombie")
        assert proc.read(pid).threads == threads
        assert os.waitpid(pid, os.WNOHANG)[0] == (0 if with_thread else pid)
    finally:
        if with_thread:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def node(cores, kib):
    return {"cpulist": f"{cores}\n", "meminfo": f"Node 0 MemTotal:       {kib} kB\nNode 0 MemFree:  1 kB\n"}


def test_memory_nodes_in_their_order(tmp_path):
    nodes = {"node10": node("8-9,12", 2048000), "node2": node("", 1024), "node0": node("0-3", 1048576)}
    files = {f"devices/system/node/{name}/{file}": text for name, one in nodes.items() for file, text in one.items()}
    tree(tmp_path, {**files, "devices/system/node/online": "0,2,10\n", "devices/system/node/nodeX/cpulist": "7\n"})
    assert machine.numa(str(tmp_path)) == [
        {"node": 0, "cores": [0, 1, 2, 3], "memory_mib": 1024},
        {"node": 2, "cores": [], "memory_mib": 1},
        {"node": 10, "cores": [8, 9, 12], "memory_mib": 2000},
    ]
    assert machine.numa(str(tmp_path / "none")) == []


@pytest.mark.skipif(not Path("/sys/devices/system/node/node0").exists(), reason="this kernel shows no nodes")
def test_the_nodes_of_this_machine_hold_its_memory():
    # Not all of it: on a virtual machine that was given more later, a node was seen with half of the total.
    found = machine.numa()
    total = machine.memory()["total_mib"]
    assert 0 < sum(n["memory_mib"] for n in found) <= len(found) + total + total // 50
    assert set(os.sched_getaffinity(0)) <= {core for n in found for core in n["cores"]}


def test_memory(tmp_path):
    text = "MemTotal:       2048000 kB\nMemFree: 1 kB\nMemAvailable: 1024000 kB\nSwapTotal: 4096 kB\nHugePages_Total: 5\n"
    assert machine.memory(str(tree(tmp_path, {"meminfo": text}))) == {
        "total_mib": 2000,
        "available_mib": 1000,
        "swap_total_mib": 4,
        "swap_free_mib": None,
    }
    assert set(machine.memory(str(tmp_path / "none")).values()) == {None}


def test_a_large_machine_is_not_read_to_its_last_core(tmp_path, monkeypatch):
    core = "processor\t: 0\nflags\t\t: fpu hypervisor\n" + "x" * 3000 + "\n"
    tree(tmp_path, {"proc/cpuinfo": core * 500})
    read = []
    kept = machine._text
    monkeypatch.setattr(machine, "_text", lambda path, *limit: read.append(len(kept(path, *limit))) or kept(path, *limit))
    assert machine.platform(str(tmp_path))["virtual"] == "unknown"
    assert 0 < max(read) < 20000
