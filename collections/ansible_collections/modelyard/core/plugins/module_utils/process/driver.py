"""A change of the NVIDIA driver on its host: look, plan with dry runs, refuse or do, look again. Standard library only."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import allowed, before, steps
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.steps import Step
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.process import files
from ansible_collections.modelyard.core.plugins.module_utils.process.packages import Manager, exact, holder, of_host
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.run import LOG, Failed
from ansible_collections.modelyard.core.plugins.module_utils.survey import host, stack
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

UNITS = {"nvidia-persistenced.service": False, "nvidia-fabricmanager.service": True}  # True: only where there are NVSwitches
UNIT_FOLDERS = ("/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system")
MODPROBE_FOLDERS = ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
QUICK_S = 120.0
Findings = List[Dict[str, str]]


class Request(NamedTuple):
    """`survey`: of host.Request. `name`: of the host in findings. For the rest see the module nvidia_driver."""

    survey: Mapping[str, Any]
    name: str
    tool_path: Sequence[str]
    wanted: Wanted
    flavour: str
    signed: bool
    boot_mib: int
    usr_mib: int
    wait_s: int
    limit_s: int
    pending_reboot_allowed: bool

    @property
    def limits(self) -> exact.Limits:
        """For the package manager."""
        return exact.Limits(self.survey["sysroot"], self.wait_s, self.limit_s)


class Outcome(NamedTuple):
    """`steps`: done, or to be done in check mode. `reboot`: why one is needed; empty for not. `before`: files as they were."""

    findings: Findings
    steps: List[Step]
    done: bool
    reboot: str
    next_kernel: str
    before: Dict[str, str]


def look(request: Request) -> Dict[str, Any]:
    """A survey of now, in which the host has the name that people know it by."""
    seen = host.look(host.Request(**request.survey))
    seen["host"]["name"] = request.name
    return seen


def change(request: Request, check_mode: bool) -> Outcome:
    """Everything; nothing is changed where there is a finding, or in check mode."""
    seen = look(request)
    sysroot = request.survey["sysroot"]
    manager = of_host(seen["stack"]["packages"]["manager"], sysroot, request.tool_path)
    if manager is None:
        what = f"there is no package manager that is known ({seen['stack']['packages']['manager'] or 'no database'})"
        return _refused([finding("DR-BROKEN", request.name, what, "an admin installs the driver")], [])
    planned = exact.plan(manager, request.wanted, request.name)
    may = seen["host"]["uid"] == 0 and not check_mode
    # What is half there may be somebody's who is at work just now: that is waited for, too.
    if may and (planned.changes or planned.findings or manager.unfinished()):
        planned = exact.fresh(manager, request.wanted, request.name, request.limits)
    first = steps.of_packages(manager.unfinished(), planned.changes)
    predicted = allowed.after(manager.installed(), planned.changes)
    last = [] if planned.findings else steps.around(_facts(request, seen, manager, predicted))
    found = [*planned.findings, *_forbidden(request, seen, manager, [*first, *last])]
    texts = {path: _text(below(sysroot, path)) for path in (steps.BLACKLIST_FILE, steps.SPARE_FILE)}
    if found or check_mode or not (first or last):
        # What is loaded now is what will be loaded after these steps, too.
        reason = "" if found else _reboot(request, seen)
        return Outcome(found, [*first, *last], False, reason, "" if found or first else _next_kernel(request, seen), texts)
    held_by = holder.wait(sysroot, manager.locks, manager.pid_files, request.wait_s)
    if held_by:
        return _refused([exact.locked(request.name, request.limits, held_by)], [])
    return _carry_out(request, manager, planned, first)._replace(before=texts)


def _refused(found: Findings, done: List[Step]) -> Outcome:
    return Outcome(found, done, bool(done), "", "", {})


def _carry_out(request: Request, manager: Manager, planned: exact.Planned, first: Sequence[Step]) -> Outcome:
    """Packages first; what belongs around them is looked up when they are there."""
    done: List[Step] = []
    try:
        if first and first[0].kind == "configure":
            planned = _finished(request, manager)
            done.append(first[0])
        if planned.changes:
            coming = {change.name: change.new for change in planned.changes if change.new and request.wanted.has(change.name)}
            manager.install({**planned.request, **coming}, request.limit_s, request.wait_s)
            done.append(steps.of_packages([], planned.changes)[0])
        left = manager.unfinished()
        if left:
            raise Failed(f"packages are still half there: {', '.join(left)}")
        seen = look(request)
        wrong = allowed.strays(request.wanted, manager.installed())
        if wrong and request.wanted.names:
            raise Failed(f"it ended well, and these are not of {request.wanted.version}: {', '.join(wrong)}")
        there = seen["accelerators"]["nvidia"]["driver"]["on_disk"]
        if request.wanted.names and there != request.wanted.version:
            raise Failed(f"it ended well, and this kernel has {there or 'no module of the driver'}, not {request.wanted.version}")
        for step in steps.around(_facts(request, seen, manager, manager.installed())):
            _do(step, request, manager, seen)
            done.append(step)
    except (Failed, files.Failed, OSError) as exc:
        behind = f"done before: {', '.join(step.kind for step in done) or 'nothing'}"
        do = f"read {LOG} on the host, correct what it names, and run again: it goes on from there"
        return _refused([finding("DR-FAILED", request.name, f"{exc}; {behind}", do)], done)
    seen = look(request)
    return Outcome([], done, True, _reboot(request, seen), _next_kernel(request, seen), {})


def _finished(request: Request, manager: Manager) -> exact.Planned:
    """After what was interrupted is finished: the plan anew. What cannot be finished may be installed again: that is no end."""
    why = ""
    try:
        manager.configure(request.limit_s)
    except Failed as exc:
        why = str(exc)
    planned = exact.plan(manager, request.wanted, request.name)
    if planned.findings or (why and not planned.changes):
        raise Failed(why or planned.findings[0]["what"])
    return planned


def _do(step: Step, request: Request, manager: Manager, seen: Mapping[str, Any]) -> None:
    sysroot = request.survey["sysroot"]
    if step.kind == "hold":
        manager.hold(step.names, request.limit_s)
    elif step.kind in ("blacklist", "spare"):
        path, text = {
            "blacklist": (steps.BLACKLIST_FILE, steps.BLACKLIST_TEXT),
            "spare": (steps.SPARE_FILE, steps.SPARE_TEXT),
        }[step.kind]
        files.write([files.File(below(sysroot, path), text, 0o644, False)])
    elif step.kind == "initramfs":
        manager.initramfs(request.limit_s)
    elif step.kind == "load":
        manager.programs.do(["modprobe", "nvidia"], QUICK_S, {})
        if not look(request)["accelerators"]["nvidia"]["driver"]["loaded"]:
            raise Failed("modprobe nvidia ended well, and the module is not loaded: the kernel's log says why (dmesg)")
    elif step.kind == "units":
        loaded = look(request)["accelerators"]["nvidia"]["driver"]["loaded"]
        now = ["--now"] if loaded == request.wanted.version else []  # under another module they would not start
        manager.programs.do(["systemctl", "enable", *now, *step.names], QUICK_S, {})


def _forbidden(request: Request, seen: Mapping[str, Any], manager: Manager, todo: Sequence[Step]) -> Findings:
    """What speaks against these steps now."""
    kinds = {step.kind for step in todo}
    if not todo:
        return []
    found = before.root(seen, [step.words for step in todo])
    sysroot, rooms = request.survey["sysroot"], []
    if kinds & {"install", "configure"}:
        found += before.in_use(seen, request.survey["backends"]["nvidia"]["bystanders"], "run")
        found += before.pending(seen, request.pending_reboot_allowed)
        found += before.secure_boot(seen, request.signed, _key_enrolled(manager, sysroot))
        rooms = [before.Room("/usr", stack.free(sysroot, "/usr"), request.usr_mib)]
    if kinds & {"install", "configure", "initramfs"}:
        rooms = [before.Room("/boot", stack.free(sysroot, "/boot"), request.boot_mib), *rooms]
    found += before.room(rooms, request.name)
    if manager.lacks and kinds & {"install", "hold"}:
        what = f"the set could not be held: the host lacks {manager.lacks}"
        found.append(finding("DR-BROKEN", request.name, what, "install it, then run again. Nothing was changed"))
    return found


def _facts(request: Request, seen: Mapping[str, Any], manager: Manager, installed: Mapping[str, str]) -> Dict[str, Any]:
    sysroot, about = request.survey["sysroot"], seen["stack"]
    keep = steps.to_hold(installed, [], request.wanted)
    running = next((kernel["release"] for kernel in about["kernels"] if kernel["running"]), "")
    listed = _text(below(sysroot, f"/lib/modules/{running}/modules.dep")) if running else ""
    return {
        "hold": steps.to_hold(installed, manager.held(), request.wanted),
        "spared": steps.is_spared(about["updates"], keep),
        "nouveau": {**about["nouveau"], "available": "/nouveau.ko" in listed},
        "initramfs_stale": _is_stale(sysroot),
        "loaded": seen["accelerators"]["nvidia"]["driver"]["loaded"],
        "version": request.wanted.version,
        "units": [unit for unit, switches in UNITS.items() if (not switches or about["switches"]) and _is_off(unit, sysroot)],
    }


def _is_off(unit: str, sysroot: str) -> bool:
    """Is it there, meant to be switched on, and not on?"""
    text = next((text for folder in UNIT_FOLDERS for text in [_text(below(sysroot, f"{folder}/{unit}"))] if text), "")
    wants = Path(below(sysroot, "/etc/systemd/system"))
    folders = [folder for kind in ("wants", "requires") for folder in wants.glob(f"*.{kind}")]
    return "[Install]" in text and not any(os.path.lexists(str(folder / unit)) for folder in folders)


def _is_stale(sysroot: str) -> bool:
    """Is an initramfs older than a file that keeps nouveau out? By the time at which that came here: packages keep old dates."""
    boot = Path(below(sysroot, "/boot"))
    images = [path.stat().st_mtime for pattern in ("initrd.img-*", "initramfs-*.img") for path in boot.glob(pattern)]
    listed = [path for folder in MODPROBE_FOLDERS for path in sorted(Path(below(sysroot, folder)).glob("*.conf"))]
    lists = [path.stat().st_ctime for path in listed if re.search(r"^\s*blacklist\s+nouveau", _text(str(path)), re.MULTILINE)]
    return bool(images and lists) and min(images) < max(lists)


def _reboot(request: Request, seen: Mapping[str, Any]) -> str:
    driver = seen["accelerators"]["nvidia"]["driver"]
    return steps.reboot_reason(driver, seen["stack"]["nouveau"]["loaded"], request.wanted.version, request.flavour)


def _next_kernel(request: Request, seen: Mapping[str, Any]) -> str:
    """Words where the newest kernel has no module of this driver."""
    coming: Mapping[str, Any] = next((kernel for kernel in seen["stack"]["kernels"] if kernel["next"]), {})
    if not coming or coming["running"] or coming["module"] == request.wanted.version:
        return ""
    return f"kernel {coming['release']}, which boots next, has {coming['module'] or 'no module of the driver'}"


def _key_enrolled(manager: Manager, sysroot: str) -> bool:
    """Has somebody enrolled the key that DKMS signs with?"""
    for key in ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der"):
        if os.path.exists(below(sysroot, key)):
            said = manager.programs.ask(["mokutil", "--test-key", below(sysroot, key)])
            if "already enrolled" in said["stdout"] + said["stderr"]:
                return True
    return False


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
