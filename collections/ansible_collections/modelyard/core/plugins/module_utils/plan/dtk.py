"""What is to be done for Hygon's driver and DTK, and what forbids it. Pure functions over names of files, archives and facts."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

Findings = List[Dict[str, str]]
JUDGED, INSTALLED, PINNED = "judged", "installed", "pinned"
NOTHING = "Nothing was changed"
TARBALL = re.compile(r"DTK-(?P<dtk>[0-9]+(?:\.[0-9]+)+)\S*\.(?:tar\.gz|tgz|tar\.xz|tar)")
#: `rock-<base>-<driver>-V<build>.run`; the base is left out of newer names.
PACKAGE = re.compile(r"rock-(?:[0-9]+(?:\.[0-9]+)+-)?(?P<driver>[0-9]+(?:\.[0-9]+)+-V[0-9A-Za-z.]+?)(?:\.aio)?\.run")
#: What stands in an inventory shows in outputs.
SECRET = re.compile(r"https?://[^/]*@")
SHA256 = re.compile(r"[0-9a-f]{64}")
#: What an installation leaves free beside what it unpacks, MiB. A choice.
SPARE_MIB = 1024
#: What the vendor's guides ask for before the module can be built.
TOOLS = ("gcc", "g++", "make", "cmake", "automake", "autoconf", "m4", "lspci")


class Step(NamedTuple):
    """`kind`: which one; `words`: for people; `names`: what it is about."""

    kind: str
    words: str
    names: Sequence[str] = ()


class Member(NamedTuple):
    """One entry of an archive; `kind`: file, folder, link (symbolic), hardlink, other. `link`: where it leads."""

    name: str
    kind: str
    size: int = 0
    link: str = ""


def dtk_of(tarball: str) -> str:
    """`24.04.1` of DTK-24.04.1-CentOS7.6-x86_64.tar.gz; empty where the name does not say it."""
    found = TARBALL.fullmatch(posixpath.basename(tarball))
    return found.group("dtk") if found else ""


def driver_of(package: str) -> str:
    """`6.2.26-V1.5` of rock-5.7.1-6.2.26-V1.5.run; empty where the name does not say it."""
    found = PACKAGE.fullmatch(posixpath.basename(package))
    return found.group("driver") if found else ""


def number(driver: str) -> str:
    """What of a driver's version is compared: its numbers up to -V."""
    return driver.partition("-")[0]


def wishes(host: str, args: Mapping[str, Any]) -> Findings:
    """What the inventory says and cannot be, all at once. `args`: of the module."""
    found: Findings = []

    def wrong(name: str, what: str, do: str) -> None:
        found.append(finding("DT-WANTED", f"{host}:{name}", what, f"{do}. {NOTHING}"))

    if args["tarball"] and not args["dtk"]:
        wrong("modelyard_stack.dtk", "a DTK is to be installed, and which release is not said", "name it as the tarball does")
    for name, file, said in (
        ("hygon_dtk_tarball", args["tarball"], dtk_of(args["tarball"])),
        ("hygon_dtk_driver", args["package"], driver_of(args["package"])),
    ):
        if SECRET.match(file):
            wrong(name, "the address of the mirror holds a password", "name a mirror without one, or bring the file to the host")
        elif file and not said:
            wrong(name, f"{file} is not called as the vendor calls it", "keep the vendor's file name: it says the release")
    if args["tarball"] and dtk_of(args["tarball"]) not in ("", args["dtk"]) and args["dtk"]:
        what = f"it is DTK {dtk_of(args['tarball'])}, and modelyard_stack.dtk is {args['dtk']}"
        wrong("hygon_dtk_tarball", what, "name the same release at both places")
    for name, file, sums in (
        ("hygon_dtk_sha256", args["tarball"], args["sha256"]),
        ("hygon_dtk_driver_sha256", args["package"], args["package_sha256"]),
    ):
        if file and not SHA256.fullmatch(sums):
            wrong(name, f"{sums or 'nothing'} is no SHA-256 of {file}", f"write what `sha256sum {file}` says where you trust it")
    if not args["tarball"] and not args["package"] and not args["users"]:
        wrong("hygon_dtk_state", "there is nothing to install", "name hygon_dtk_tarball, hygon_dtk_driver or hygon_dtk_users")
    return found


def judge_members(members: Sequence[Member]) -> Tuple[str, int, str]:
    """(the one folder on top, MiB when unpacked, what is wrong): nothing of it may land outside of its folder."""
    tops = {member.name.lstrip("./").partition("/")[0] for member in members} - {""}
    size = -(-sum(member.size for member in members) // 2**20)
    links = {posixpath.normpath(member.name) for member in members if member.kind == "link"}
    for member in members:
        name = member.name
        where = posixpath.normpath(name)
        if name.startswith("/") or where.startswith(".."):
            return "", size, f"it has {name}, which lies outside"
        if any(where.startswith(f"{link}/") for link in links):
            return "", size, f"{name} lies behind a link"
        if member.kind == "other":
            return "", size, f"{name} is neither file, folder nor link"
        if member.kind in ("link", "hardlink"):
            start = posixpath.dirname(where) if member.kind == "link" else ""
            target = posixpath.normpath(posixpath.join(start, member.link))
            if member.link.startswith("/") or target.startswith(".."):
                return "", size, f"{name} is a link to {member.link}, which lies outside"
    if len(tops) != 1:
        return "", size, f"it has {len(tops)} entries on top instead of one folder"
    return tops.pop(), size, ""


def steps(facts: Mapping[str, Any], args: Mapping[str, Any]) -> List[Step]:
    """What is left to do, in order; a second run has none.

    `facts`: driver {loaded, on_disk}, beside {folder: version}, pointer {kind: absent|link|folder, version}, device_groups,
    groups {user: [group], or None where there is no such user}.
    """
    pinned = args["state"] == PINNED
    found: List[Step] = []
    driver, there = driver_of(args["package"]), str(facts["driver"]["on_disk"])
    if driver and number(there) != number(driver) and (pinned or not (there or facts["driver"]["loaded"])):
        before = f" in place of {there}" if there else ""
        found.append(Step("driver", f"install driver {driver}{before}", (args["package"],)))
    dtk = args["dtk"] if args["tarball"] else ""
    if dtk and dtk not in facts["beside"].values():
        found.append(Step("unpack", f"unpack {args['tarball']} to {folder(dtk)}", (args["tarball"],)))
    pointer = facts["pointer"]
    if dtk and (pointer["kind"] == "absent" or (pinned and pointer["version"] != dtk)):
        before = f" in place of DTK {pointer['version']}" if pointer["version"] else ""
        found.append(Step("point", f"let /opt/dtk lead to DTK {dtk}{before}"))
    for user in args["users"]:
        lacking = [group for group in facts["device_groups"] if group not in (facts["groups"].get(user) or ())]
        if lacking:
            found.append(Step("groups", f"add {user} to {', '.join(lacking)}", (user, *lacking)))
    return found


def folder(dtk: str) -> str:
    """Where a release is unpacked, beside others."""
    return f"/opt/dtk-{dtk}"


def forbidden(host: str, facts: Mapping[str, Any], todo: Sequence[Step], args: Mapping[str, Any]) -> Findings:
    """What speaks against these steps now, all at once.

    `facts` besides: uid, user, files {path: {problem, sha256}}, archive {mib, problem}, free_mib, kernel,
    headers (None: not known), programs (those that are missing), card_users and dtk_users (in words), services (that run).
    """
    kinds = {step.kind for step in todo}
    found: Findings = []

    def no(id: str, what: str, do: str, where: str = host) -> None:
        found.append(finding(id, where, what, f"{do}. {NOTHING}"))

    if todo and facts["uid"] != 0:
        left = "; ".join(step.words for step in todo)
        no(
            "DT-ROOT",
            f"user {facts['user']} is not root, and this is left to do: {left}",
            "run with -e hygon_dtk_become=true (sudo)",
        )
    for kind, path, wanted in (("driver", args["package"], args["package_sha256"]), ("unpack", args["tarball"], args["sha256"])):
        seen: Mapping[str, str] = facts["files"].get(path, {}) if kind in kinds else {}
        if seen.get("problem"):
            no("DT-FILE", seen["problem"], "bring the file, or correct its place in the inventory", f"{host}:{path}")
        elif seen.get("sha256") and seen["sha256"] != wanted:
            what = f"its SHA-256 is {seen['sha256']}, wanted is {wanted}"
            no("DT-CHECKSUM", what, "fetch it again, and compare with the vendor's sum", f"{host}:{path}")
    for user in (step.names[0] for step in todo if step.kind == "groups"):
        if facts["groups"][user] is None:
            no("DT-WANTED", f"there is no user {user}", "correct it, or make the user first", f"{host}:hygon_dtk_users")
    if "unpack" in kinds and facts["archive"]["problem"]:
        no("DT-TARBALL", facts["archive"]["problem"], "use the vendor's own file", f"{host}:{args['tarball']}")
    least = facts["archive"]["mib"] + SPARE_MIB
    if "unpack" in kinds and facts["free_mib"] < least:
        what = f"{facts['free_mib']} MiB are free, {least} MiB are wanted for unpacking"
        no("DT-ROOM", what, "make room there", f"{host}:/opt")
    if "point" in kinds and facts["pointer"]["kind"] == "folder":
        what = "it is a folder and no link: somebody has unpacked a DTK right there"
        no("DT-FOREIGN", what, "move it to /opt/dtk-RELEASE yourself, and run again", f"{host}:/opt/dtk")
    if "point" in kinds and facts["dtk_users"]:
        what = f"programs run from the DTK that /opt/dtk leads to: {'; '.join(facts['dtk_users'])}"
        no("DT-IN-USE", what, "ask their users, or wait; services of this project: playbooks/teardown.yml")
    if "driver" in kinds:
        found += _driver(host, facts, args)
    return found


def _driver(host: str, facts: Mapping[str, Any], args: Mapping[str, Any]) -> Findings:
    """A driver is built for the running kernel, and under nobody's feet."""
    found: Findings = []
    if facts["card_users"]:
        what = f"{len(facts['card_users'])} process(es) have a card open: {'; '.join(facts['card_users'])}"
        found.append(finding("DT-IN-USE", host, what, f"ask them, or wait. {NOTHING}"))
    if facts["services"]:
        what = f"services of this project run: {', '.join(facts['services'])}"
        found.append(finding("DT-IN-USE", host, what, f"take them down first: playbooks/teardown.yml. {NOTHING}"))
    lacking = [*facts["programs"], *([f"headers of kernel {facts['kernel']}"] if facts["headers"] is False else [])]
    if lacking:
        what = f"the module is built on the host, which lacks {', '.join(lacking)}"
        found.append(finding("DT-TOOLS", host, what, f"install them with the system's packages. {NOTHING}"))
    if not args["answers"]:
        what = "the installer asks questions (an old hymgr.cfg, the cards' vbios), and what it is to be told is not said"
        do = "run it once by hand on one host, and write its answers into hygon_dtk_driver_answers"
        found.append(finding("DT-WANTED", f"{host}:hygon_dtk_driver_answers", what, f"{do}. {NOTHING}"))
    return found


def reload_reason(driver: Mapping[str, str], package: str) -> str:
    """Why what was installed does not run yet; empty where it does."""
    wanted, loaded = driver_of(package), str(driver["loaded"])
    if not wanted or number(str(driver["on_disk"])) != number(wanted) or number(loaded) == number(wanted):
        return ""
    return f"driver {loaded or 'none'} is loaded, {driver['on_disk']} is installed"


def failed(host: str, why: str, done: Sequence[Step]) -> Dict[str, str]:
    """A step that did not come to its end."""
    before = ", ".join(step.kind for step in done) or "nothing"
    do = "correct it and run again: it goes on from there"
    return finding("DT-FAILED", host, f"{why}; done before: {before}", do)


def not_running(host: str, reason: str) -> Dict[str, str]:
    """It is installed and another one runs: nothing is unloaded or rebooted unasked, and nobody shall take it for done."""
    do = "when nobody uses the cards, an admin unloads the old module and loads the new one, or reboots the host"
    return finding("DT-RELOAD", host, f"installed, and not running yet: {reason}", f"{do}. Nothing was unloaded or rebooted")
