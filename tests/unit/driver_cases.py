"""One case and more for each finding about a change of the driver: joined to CASES of test_findings.py.

id, what finds it, and the whole finding: what was found, where, and what the admin can do.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable

from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import before, chosen, confirmed
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted, judge
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from ansible_collections.modelyard.core.plugins.module_utils.process.packages import exact
from unit import worlds
from unit.check_cases import about
from unit.stack_worlds import KERNEL, gpus, package

Findings = list[dict[str, str]]
WANTED = Wanted("driver", "580.178.04", (("nvidia-open-580",),))
LIMITS = exact.Limits("/", 300, 3600)
DEBIAN = {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12"}
ROCKY = {"id": "rocky", "version": "9.6", "name": "Rocky Linux 9.6"}
NEWER = {"release": "6.8.0-90-generic", "running": False, "next": True, "headers": True, "module": ""}
BARE = {**KERNEL, "headers": False, "module": ""}
RPM = {"manager": "rpm", "why": "", "found": []}
JOB = worlds.merged(gpus(), {"accelerators": {"nvidia": {"shared_holders": [4711]}}})
JOB["processes"] = {"4711": {"user": "eve", "comm": "python", "command": "python train.py", "state": "S"}}


def choice(id: str, survey: dict[str, Any], state: str = "pinned", **wish: Any) -> Callable[[], Findings]:
    """What is said of this id when a driver is chosen; `wish`: modelyard_stack."""

    def find() -> Findings:
        intent = worlds.intent(stack=wish)
        intent["services"] = []
        judged = planner.plan(intent, survey)["stack"]
        return about(id, chosen.choose((state, ""), intent, survey, judged, tables.stack())["findings"])

    return find


def manager(**changes: Any) -> Any:
    """A package manager that has nothing to say, but for `changes`."""
    said = {"unfinished": [], "installed": {}, "held": [], "offered": {}, "dry_run": ([], "")}
    answers = {name: lambda *_, value=value: value for name, value in {**said, **changes}.items()}
    return SimpleNamespace(prefer=lambda version: None, **answers)


def planned(wanted: Wanted = WANTED, **changes: Any) -> Callable[[], Findings]:
    return lambda: exact.plan(manager(**changes), wanted, "server1").findings


CASES = [
    (
        "DR-FOREIGN",
        choice("DR-FOREIGN", gpus(installer="/usr/bin/nvidia-uninstall"), driver="580.178.04"),
        "box",
        "the driver came with NVIDIA's .run installer (/usr/bin/nvidia-uninstall)",
        "an admin runs /usr/bin/nvidia-uninstall first, then reboots; packages over it would be the classic wreck",
    ),
    (
        "DR-FOREIGN",
        choice("DR-FOREIGN", gpus(containerised=True), driver="580.178.04"),
        "box",
        "the driver belongs to a container (/run/nvidia/driver)",
        "ask those who run the cluster",
    ),
    (
        "DR-FOREIGN",
        choice("DR-FOREIGN", gpus(package("nvidia-driver", "535.261.03-1"), system=DEBIAN), driver="580.178.04"),
        "box",
        "the driver's packages are of the distribution; 580.178.04 is to come from NVIDIA's repository",
        "name it to change over: nvidia_driver_source: nvidia; or write a version that their source has",
    ),
    (
        "DR-FOREIGN",
        lambda: chosen.same_machine(gpus(), worlds.survey()["host"]["boot_id"]),
        "box",
        "this run itself works on that machine, and would end in the middle",
        "reboot it by hand, then play playbooks/stack.yml again. Nothing was rebooted",
    ),
    (
        "DR-VERSION",
        choice(
            "DR-VERSION",
            worlds.merged(
                gpus(), {"accelerators": {"nvidia": {"driver": {"library": "580.65.06"}, "tool": {"state": "failed"}}}}
            ),
            state="installed",
            driver="580",
        ),
        "box:modelyard_stack.driver",
        "'580' is a branch, and a driver is to be installed",
        "write the exact version, for example 580.178.04: what is installed must not depend on the day",
    ),
    (
        "DR-VERSION",
        choice("DR-VERSION", gpus(system={"id": "arch", "version": "", "name": "Arch"}), driver="580.178.04"),
        "box:modelyard_stack.driver",
        "no table says how the packages of driver 580.178.04 (open modules) are called on Arch",
        "an admin installs it; then it is judged and kept",
    ),
    (
        "DR-VERSION",
        planned(offered={"nvidia-open-580": ["580.200.01-1"]}),
        "server1",
        "driver 580.178.04 is not offered by the host's sources: nvidia-open-580 (offered: nvidia-open-580 580.200.01-1)",
        (
            "add a source that has it (a mirror keeps old versions), write a version that is offered, or on RHEL 8 and 9 enable "
            "the stream (dnf module enable nvidia-driver:BRANCH-open). Nothing was changed"
        ),
    ),
    (
        "DR-ROOT",
        lambda: before.root(worlds.merged(gpus(), {"host": {"uid": 1000, "user": "ops"}}), ["install a 1", "hold a"]),
        "box",
        "user ops is not root, and this is left to do: install a 1; hold a",
        "run again with -e nvidia_driver_become=true (sudo), or give this to the admin of the host. Nothing was changed",
    ),
    (
        "DR-IN-USE",
        lambda: before.in_use(JOB, ["nvidia-persiste"], "run"),
        "box",
        "1 process(es) have a card open: pid 4711 of user eve (python train.py)",
        "ask them, or wait; services of this project: playbooks/teardown.yml. Then run again. Nothing was changed",
    ),
    (
        "DR-IN-USE",
        lambda: before.reboot(gpus(), "580.95.05", [], ["eve at pts/0 from 10.0.0.7"]),
        "box",
        "others are logged in: eve at pts/0 from 10.0.0.7",
        "ask them, then confirm the reboot again. Nothing was changed",
    ),
    (
        "DR-ROOM",
        lambda: before.room([before.Room("/boot", 120, 500), before.Room("/usr", 9000, 2000)], "server1"),
        "server1:/boot",
        "/boot has 120 MiB free, 500 MiB are asked for: an installation could end half-way",
        "remove old kernels or other things nobody needs there, and run again. Nothing was changed",
    ),
    (
        "DR-REBOOT-PENDING",
        lambda: before.pending(gpus(kernels=[{**KERNEL, "next": False}, NEWER]), False),
        "box",
        "a reboot is due already: kernel 6.8.0-90-generic is installed and not running",
        (
            "reboot first, look with playbooks/preflight.yml, then run again; or set nvidia_driver_pending_reboot_allowed. "
            "Nothing was changed"
        ),
    ),
    (
        "DR-SECURE-BOOT",
        lambda: before.secure_boot(gpus(secure_boot=True), False, False),
        "box",
        "Secure Boot is on, and the modules of this source are built on the host: the kernel would not load them",
        (
            "take a source whose modules the distribution signs (nvidia_driver_source), or enrol the key of DKMS: "
            "mokutil --import /var/lib/dkms/mok.pub, reboot, and confirm at the console. Modelyard never enrols a key. "
            "Nothing was changed"
        ),
    ),
    (
        "DR-HEADERS",
        choice("DR-HEADERS", gpus(system=ROCKY, kernels=[BARE], packages=RPM), driver="580.178.04"),
        "box",
        "the modules are built on this host, and the headers of the running kernel 6.8.0-88-generic are not there",
        "dnf install kernel-devel-6.8.0-88-generic; not a newer kernel instead. Nothing was changed",
    ),
    (
        "DR-HEADERS",
        planned(WANTED._replace(names=(("linux-headers-6.1.0-30-amd64",),))),
        "server1",
        (
            "the modules are built on this host, and the headers of the running kernel are not offered: "
            "linux-headers-6.1.0-30-amd64 (offered: nothing of that name)"
        ),
        "offer exactly these in the host's sources, or update and reboot into a kernel whose headers are. Nothing was changed",
    ),
    (
        "DR-KERNEL",
        lambda: judge([Change("install", "linux-image-6.8.0-90-generic", "", "6.8.0-90.91")], WANTED, [], ({}, []), "server1"),
        "server1",
        "the dry run would install linux-image-6.8.0-90-generic 6.8.0-90.91, which is a kernel",
        "update and reboot into the kernel you want first, then change the driver for that one. Nothing was changed",
    ),
    (
        "DR-TRANSACTION",
        lambda: judge([Change("remove", "slurmd", "23.11", "")], WANTED, [], ({}, ["slurmd"]), "server1"),
        "server1",
        "the dry run would remove slurmd 23.11 (held), which nobody asked for",
        "ask whose these are; move or update them by yourself first, in a step of its own. Nothing was changed",
    ),
    (
        "DR-TRANSACTION",
        lambda: judge([Change("install", "libnvidia-gl-590", "", "590.48.01-1")], WANTED, [], ({}, []), "server1"),
        "server1",
        "the dry run would install libnvidia-gl-590 590.48.01-1, which is not of 580.178.04",
        "offer all packages of 580.178.04 in the host's sources (a mirror keeps old versions). Nothing was changed",
    ),
    (
        "DR-BROKEN",
        planned(unfinished=["postgresql (half-configured)"]),
        "server1",
        ("an interrupted run of the package manager has left packages of others half there: postgresql (half-configured)"),
        "the admin of the host finishes that first (dpkg --configure -a, or dnf check). Nothing was changed",
    ),
    (
        "DR-BROKEN",
        planned(offered={"nvidia-open-580": ["580.178.04-1"]}, dry_run=([], "unmet dependencies")),
        "server1",
        "the dry run of the package manager fails: unmet dependencies",
        "its words say what does not fit together; correct the host's sources or packages. Nothing was changed",
    ),
    (
        "DR-LOCK",
        lambda: [exact.locked("server1", LIMITS, "pid 7 of user root (apt-get upgrade) holds /var/lib/dpkg/lock")],
        "server1",
        (
            "another run of the package manager has not ended within 300 s: pid 7 of user root (apt-get upgrade) holds "
            "/var/lib/dpkg/lock"
        ),
        "wait until it is done (updates at night take a while), then run again; it was not touched. Nothing was changed",
    ),
    (
        "DR-FAILED",
        lambda: before.runs(gpus(), "580.178.04"),
        "box",
        "the host has rebooted, and driver 580.95.05 is loaded, not 580.178.04",
        "read the kernel's log (dmesg) for NVRM, nouveau and signatures; then playbooks/stack.yml says the state",
    ),
    (
        "DR-NEXT-KERNEL",
        lambda: before.reboot(gpus(kernels=[{**KERNEL, "next": False}, NEWER]), "580.95.05", [], []),
        "box",
        "the kernel of the next boot, 6.8.0-90-generic, has no module of the driver and not 580.95.05",
        "install the driver for that kernel first. Nothing was changed",
    ),
    (
        "DR-CONFIRM",
        lambda: confirmed.judge("sevrer1", {"server1": "x", "server2": None}),
        "confirm_reboot sevrer1",
        "'sevrer1' is no host of this run; there are: server1, server2",
        "write -e confirm_reboot=HOST, several with a comma between, each by its name in the inventory. Nothing was changed",
    ),
    (
        "DR-CONFIRM",
        lambda: [item for state in ("installed", "judged") for item in confirmed.without_use("server1", state)],
        "confirm_reboot server1",
        "nothing is changed on server1 (nvidia_driver_state: judged), so nothing would reboot it",
        "ask for the change, for example -e nvidia_driver_state=installed, or leave the confirmation out. Nothing was changed",
    ),
    (
        "DR-REBOOT",
        lambda: before.not_confirmed("server1", "driver 580.95.05 is loaded, 580.178.04 is installed"),
        "server1",
        "installed, reboot needed: driver 580.95.05 is loaded, 580.178.04 is installed",
        "when everybody who uses the host knows: the same again with -e confirm_reboot=server1. Nothing was rebooted",
    ),
]
