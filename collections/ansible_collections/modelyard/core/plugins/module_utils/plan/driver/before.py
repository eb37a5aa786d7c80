"""What forbids a change of the driver now, from a look made right before it. All of it at once."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

Findings = List[Dict[str, str]]
NOTHING = "Nothing was changed"
NVIDIA = "nvidia"


class Room(NamedTuple):
    """Free space of a folder and what is asked for, MiB."""

    place: str
    free: Optional[int]
    least: int


def root(survey: Mapping[str, Any], steps: Sequence[str]) -> Findings:
    """Without root there is nothing but the plan."""
    if survey["host"]["uid"] == 0:
        return []
    what = f"user {survey['host']['user']} is not root, and this is left to do: {'; '.join(steps)}"
    do = "run again with -e nvidia_driver_become=true (sudo), or give this to the admin of the host. Nothing was changed"
    return [finding("DR-ROOT", survey["host"]["name"], what, do)]


def in_use(survey: Mapping[str, Any], bystanders: Collection[str], what_for: str) -> Findings:
    """Who has a card open. What runs goes on under a changed driver, and what it starts next fails: so nobody may be there."""
    accelerator = survey["accelerators"].get(NVIDIA)
    if not accelerator:
        return []
    host = survey["host"]["name"]
    cards = survey["cards"].get(NVIDIA, [])
    pids = {pid for card in cards for pid in card["holders"]} | set(accelerator["shared_holders"])
    if not survey["platform"]["container"]:  # the tool tells numbers of the machine outside
        pids |= {p["pid"] for card in cards for p in card["processes"]} | {p["pid"] for p in accelerator["unplaced_processes"]}
    users = [pid for pid in sorted(pids) if survey["processes"].get(str(pid), {}).get("comm") not in bystanders]
    found: Findings = []
    if users:
        what = f"{len(users)} process(es) have a card open: {'; '.join(process(pid, survey) for pid in users)}"
        do = f"ask them, or wait; services of this project: playbooks/teardown.yml. Then {what_for} again. {NOTHING}"
        found.append(finding("DR-IN-USE", host, what, do))
    running = [name for name, seen in sorted(survey["services"].items()) if any(i["alive"] for i in seen["instances"])]
    if running:
        do = f"take them down first: playbooks/teardown.yml. Then {what_for} again. {NOTHING}"
        found.append(finding("DR-IN-USE", host, f"services of this project run: {', '.join(running)}", do))
    return found


def process(pid: int, survey: Mapping[str, Any]) -> str:
    """`pid 4711 of user eve (python train.py)`."""
    seen = survey["processes"].get(str(pid))
    if seen is None:
        return f"pid {pid}, which is not to be seen here (gone, or in another container)"
    ended = ", ended and not gone" if seen["state"] in "ZX" else ""
    return f"pid {pid} of user {seen['user']} ({(seen['command'] or seen['comm'])[:120]}{ended})"


def room(rooms: Sequence[Room], host: str) -> Findings:
    """A full /boot or /usr ends an installation half-way."""
    found = []
    for one in rooms:
        if one.free is not None and one.free < one.least:
            what = f"{one.place} has {one.free} MiB free, {one.least} MiB are asked for: an installation could end half-way"
            do = f"remove old kernels or other things nobody needs there, and run again. {NOTHING}"
            found.append(finding("DR-ROOM", f"{host}:{one.place}", what, do))
    return found


def pending(survey: Mapping[str, Any], allowed: bool) -> Findings:
    """A reboot that is due already would make one of two changes, and nobody could tell which of them broke what."""
    seen = survey["stack"]
    coming: Mapping[str, Any] = next((kernel for kernel in seen.get("kernels", ()) if kernel["next"]), {})
    is_other = bool(coming) and not coming["running"]
    if allowed or not (seen.get("reboot_required") or is_other):
        return []
    why = f"kernel {coming['release']} is installed and not running" if is_other else "/run/reboot-required is there"
    do = (
        f"reboot first, look with playbooks/preflight.yml, then run again; or set nvidia_driver_pending_reboot_allowed. {NOTHING}"
    )
    return [finding("DR-REBOOT-PENDING", survey["host"]["name"], f"a reboot is due already: {why}", do)]


def secure_boot(survey: Mapping[str, Any], signed: bool, key_enrolled: bool) -> Findings:
    """Modules that are built on a host are loaded only when somebody has enrolled the key, at the console.

    The key of DKMS that is enrolled signs what it builds.
    """
    if not survey["stack"].get("secure_boot") or signed or key_enrolled:
        return []
    what = "Secure Boot is on, and the modules of this source are built on the host: the kernel would not load them"
    do = (
        "take a source whose modules the distribution signs (nvidia_driver_source), or enrol the key of DKMS: mokutil --import "
        f"/var/lib/dkms/mok.pub, reboot, and confirm at the console. Modelyard never enrols a key. {NOTHING}"
    )
    return [finding("DR-SECURE-BOOT", survey["host"]["name"], what, do)]


def reboot(survey: Mapping[str, Any], version: str, bystanders: Collection[str], seats: Sequence[str]) -> Findings:
    """May a host reboot that a person has named? Not under other people, and not into a kernel without the driver.

    :param seats: logged in now, `user from where`, without this run itself.
    """
    host = survey["host"]["name"]
    found = in_use(survey, bystanders, "confirm the reboot")
    if seats:
        what = f"others are logged in: {', '.join(seats)}"
        found.append(finding("DR-IN-USE", host, what, f"ask them, then confirm the reboot again. {NOTHING}"))
    busy = [pid for pid in [*survey["stuck"], *survey["zombies"]] if _on_device(survey, pid)]
    if busy:
        what = f"{'; '.join(process(int(pid), survey) for pid in busy)}: it hangs in the driver, and a reboot may hang with it"
        found.append(finding("DR-IN-USE", host, what, f"a person reboots this host, with a way to switch it off. {NOTHING}"))
    coming: Mapping[str, Any] = next((kernel for kernel in survey["stack"].get("kernels", ()) if kernel["next"]), {})
    if coming and coming["module"] != version:
        there = f"driver {coming['module']}" if coming["module"] else "no module of the driver"
        what = f"the kernel of the next boot, {coming['release']}, has {there} and not {version}"
        found.append(finding("DR-NEXT-KERNEL", host, what, f"install the driver for that kernel first. {NOTHING}"))
    return found


def not_confirmed(host: str, reason: str) -> Findings:
    """It is installed, and only a reboot makes it run: never done unasked, and never hidden."""
    do = f"when everybody who uses the host knows: the same again with -e confirm_reboot={host}. Nothing was rebooted"
    return [finding("DR-REBOOT", host, f"installed, reboot needed: {reason}", do)]


def seats(text: str) -> List[str]:
    """Who is logged in at a terminal, out of `who -u`: this run has none."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1:
            origin = f" from {words[-1][1:-1]}" if words[-1].startswith("(") else ""
            found.append(f"{words[0]} at {words[1]}{origin}")
    return found


def runs(survey: Mapping[str, Any], version: str) -> Findings:
    """Does the kernel run this driver, after a reboot?"""
    driver = survey["accelerators"].get(NVIDIA, {}).get("driver") or {}
    if driver.get("loaded") == version:
        return []
    what = f"the host has rebooted, and driver {driver.get('loaded') or 'none'} is loaded, not {version}"
    do = "read the kernel's log (dmesg) for NVRM, nouveau and signatures; then playbooks/stack.yml says the state"
    return [finding("DR-FAILED", survey["host"]["name"], what, do)]


def _on_device(survey: Mapping[str, Any], pid: int) -> bool:
    held = {pid for card in survey["cards"].get(NVIDIA, []) for pid in card["holders"]}
    return pid in held or pid in survey["accelerators"].get(NVIDIA, {}).get("shared_holders", ())
