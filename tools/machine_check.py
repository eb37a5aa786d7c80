"""Can this machine run the demo or the tests? Says all that is missing at once, in plain words, before anything is made.

usage: machine_check.py demo|test      (standard library only, any Python 3)
"""

import ctypes
import os
import platform
import shutil
import sys

NEED = {
    # MiB. Disk: the runtime takes 3600, pip's cache 600, the tests' Pythons 700. Memory: what the preflight will ask for.
    "demo": {"disk_mib": 6000, "memory_mib": 5400},
    "test": {"disk_mib": 7000, "memory_mib": 6000},
}


def available_memory_mib():
    """MemAvailable of /proc/meminfo; None where there is none."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) // 1024
    except OSError:
        pass
    return None


def missing_packages():
    """What the engine needs of the system, as text."""
    found = []
    if shutil.which("g++") is None:
        found.append("there is no g++, which PyTorch calls on CPUs. On Debian or Ubuntu: apt-get install g++")
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        found.append("there is no libnuma.so.1, which the CPU build of vLLM loads. On Debian or Ubuntu: apt-get install libnuma1")
    return found


def findings(purpose):
    """Every reason why it would not work, as text."""
    need = NEED[purpose]
    found = []
    if sys.platform != "linux":
        found.append(
            "this is %s: the CPU build of vLLM used here exists for Linux only. Use a Linux machine or VM." % sys.platform
        )
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        found.append(
            "this Python is %s (%s); 3.11, 3.12 or 3.13 is needed. Install one and say PYTHON=python3.11 after make."
            % (platform.python_version(), sys.executable)
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        found.append("this Python cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv")
    free = shutil.disk_usage(".").free // 2**20
    if free < need["disk_mib"] and not os.path.isdir(".cache/runtimes"):
        found.append("%d MiB are free on this disk, about %d are needed. Free some space." % (free, need["disk_mib"]))
    memory = available_memory_mib()
    if memory is not None and memory < need["memory_mib"]:
        found.append("%d MiB of memory are free, about %d are needed. Close something large." % (memory, need["memory_mib"]))
    if shutil.which("bash") is None:
        found.append("there is no bash, which the launch scripts are written for.")
    if purpose != "test" or os.geteuid() != 0 or shutil.which("apt-get") is None:  # else the tests install what they need
        found += missing_packages()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if cores < 2:
        found.append("there is one CPU core; tensor parallel over two ranks needs two.")
    return found


def main():
    """Exit 0 when it can run, else 1 with every reason."""
    found = findings(sys.argv[1])
    if found:
        print("This machine cannot run `make %s` yet:" % sys.argv[1])
        for text in found:
            print("  - " + text)
        print("Nothing was changed.")
        sys.exit(1)


if __name__ == "__main__":
    main()
