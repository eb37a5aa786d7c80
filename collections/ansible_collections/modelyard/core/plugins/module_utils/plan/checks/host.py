"""The host around the engine: home, lock, shell environment, limits, and what could not be read."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

Findings = List[Dict[str, str]]
#: An API server with many connections and a worker with many shared libraries and segments open some thousands of files.
NOFILE_MIN = 4096
#: Threads of torch, of the OpenMP runtime and of the server; on Linux the limit of processes counts threads.
NPROC_MIN = 2048
DISK_LOW_MIB = 1024
#: Read by container engines, and set by them inside.
FOR_CONTAINERS = {"NVIDIA_VISIBLE_DEVICES", "HYGON_VISIBLE_DEVICES"}
INODES_LOW = 1000


def findings(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Findings:
    """Everything that does not concern one service or one card."""
    return [
        *_home(intent, survey),
        *_lock(intent, survey),
        *_disks(survey),
        *_limits(survey),
        *_proxies(survey),
        *_visibility(survey),
        *_platform(survey),
        *_not_readable(intent, survey),
    ]


def _home(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Findings:
    found: Findings = []
    where = f"{survey['host']['name']}:{intent['home']}"
    if survey["home_problem"]:
        what = f"user {survey['host']['user']} cannot work there: {survey['home_problem']}"
        found.append(finding("PF-HOME", where, what, "give that user the folder, or set modelyard_home to one of its own"))
    if survey["home_shared_with"]:
        what = f"services of another machine, {survey['home_shared_with']}, run from this very folder"
        do = "give each host a modelyard_home on a disk of its own; if that machine is gone, remove its services' run folders"
        found.append(finding("PF-HOME-SHARED", where, what, do))
    return found


def _lock(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Findings:
    holder, place = survey["lock"], f"{survey['host']['name']}:{intent['home']}/lock"
    if not holder or holder.get("run") == intent["run"]:
        return []
    what = f"another run holds the lock: {holder['what']} by {holder['by']} since {holder['since']}"
    do = f"wait for it; when that run has died on its control node, remove {place}"
    return [finding("PF-LOCK-HELD", place, what, do)]


def _disks(survey: Mapping[str, Any]) -> Findings:
    found = []
    for disk in survey["disks"]:
        where = f"{survey['host']['name']}:{disk['place']}"
        purposes = ", ".join(disk["purposes"])
        if disk["problem"]:
            found.append(finding("PF-DISK-LOW", where, f"{disk['problem']} ({purposes})", "look at that place by hand (df, ls)"))
        elif disk["read_only"]:
            found.append(
                finding("PF-DISK-LOW", where, f"it is mounted read-only ({purposes})", "mount it writable, or use another")
            )
        elif disk["free_mib"] is not None and disk["free_mib"] < DISK_LOW_MIB:
            what = f"{disk['free_mib']} MiB are free of {disk['total_mib']} ({purposes}); logs and caches need room"
            found.append(finding("PF-DISK-LOW", where, what, "free space there, or use another disk"))
        elif disk["free_inodes"] is not None and disk["free_inodes"] < INODES_LOW:
            what = f"{disk['free_inodes']} inodes are free ({purposes}): no new files can be made although there is room"
            found.append(finding("PF-DISK-LOW", where, what, "remove small files that nobody needs"))
    return found


def _limits(survey: Mapping[str, Any]) -> Findings:
    limits, low = survey["limits"], []
    for name, least, words in (("nofile", NOFILE_MIN, "open files"), ("nproc", NPROC_MIN, "processes and threads")):
        hard = limits[name][1]
        if 0 <= hard < least:
            low.append(f"{words} at most {hard} (wanted: {least})")
    if limits["pids_max"] is not None and limits["pids_max"] - (limits["pids_current"] or 0) < NPROC_MIN:
        used = "an unknown number" if limits["pids_current"] is None else limits["pids_current"]
        low.append(f"{used} of {limits['pids_max']} processes and threads of the control group are used")
    if not low:
        return []
    user = survey["host"]["user"]
    do = f"an admin raises them for {user} (/etc/security/limits.conf, TasksMax= or --pids-limit)"
    return [finding("PF-LIMITS", f"{survey['host']['name']}:limits of {user}", "; ".join(low), do)]


def _proxies(survey: Mapping[str, Any]) -> Findings:
    dead: Dict[str, List[Mapping[str, Any]]] = {}
    for proxy in survey["environment"]["proxies"]:
        if proxy["answers"] is False:
            dead.setdefault(f"{proxy['host']}:{proxy['port']}", []).append(proxy)
    found = []
    for address, proxies in dead.items():
        places = ", ".join(dict.fromkeys(f"{p['variable']} in {p['source']}" for p in proxies))
        what = f"{places} points to {address}, which does not answer ({proxies[0]['why']})"
        do = "engines start without it; pip and your own shell do not: remove it, or start the proxy"
        found.append(finding("PF-PROXY-DEAD", f"{survey['host']['name']}:{address}", what, do))
    return found


def _visibility(survey: Mapping[str, Any]) -> Findings:
    found = []
    for seen in survey["environment"]["visibility"] if survey["accelerators"] else ():
        if seen["variable"] in FOR_CONTAINERS and (survey["platform"]["container"] or seen["value"] in ("all", "void")):
            continue
        shown = (
            f"{seen['variable']}={seen['value']}"
            if seen["value"]
            else f"{seen['variable']} is set, but empty: it hides every card"
        )
        what = f"{shown} ({seen['source']})"
        do = "engines get their own list; programs that you start in that shell do not: unset it there"
        found.append(finding("PF-VISIBILITY", f"{survey['host']['name']}:{seen['source']}", what, do))
    return found


def _platform(survey: Mapping[str, Any]) -> Findings:
    platform, host = survey["platform"], survey["host"]["name"]
    found = []
    if platform["pid1_reaps"] is False:
        what = f"process 1 ({platform['pid1']}) does not read the ends of orphans: every stop leaves entries in state Z"
        do = "they are harmless; run the container with an init (--init) or systemd to avoid them"
        found.append(finding("PF-INIT", host, what, do))
    if platform["container"] or platform["wsl"]:
        kind = "WSL" if platform["wsl"] else f"a container ({platform['container']})"
        what = f"this host is {kind}: processes, memory and device files of the machine outside are not seen whole"
        found.append(finding("PF-PLATFORM", host, what, "nothing; read the other findings with that in mind"))
    return found


def _not_readable(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Findings:
    if not survey["not_readable"]:
        return []
    what = f"user {survey['host']['user']} could not read: {'; '.join(survey['not_readable'])}"
    more = "" if survey["host"]["uid"] == 0 else f". As root more is seen: -b -e modelyard_home={intent['home']}"
    do = f"nothing, but findings about strangers can be incomplete{more}"
    return [finding("PF-NOT-READABLE", survey["host"]["name"], what, do)]
