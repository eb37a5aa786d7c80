"""One case for each finding about Hygon's driver and DTK: joined to CASES of test_findings.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import dtk

SUM = "ab" * 32
TARBALL, PACKAGE = "/srv/DTK-26.04-Ubuntu22.04-x86_64.tar.gz", "/srv/rock-6.3.13-V1.12.0.run"
ARGS: dict[str, Any] = {
    "state": "installed",
    "dtk": "26.04",
    "tarball": TARBALL,
    "sha256": SUM,
    "package": "",
    "package_sha256": "",
    "answers": ["n", "n"],
    "users": [],
}
FACTS: dict[str, Any] = {
    "uid": 0,
    "user": "root",
    "driver": {"loaded": "6.3.13-V1.12.0", "on_disk": "6.3.13-V1.12.0"},
    "beside": {},
    "pointer": {"kind": "absent", "version": ""},
    "device_groups": ["video"],
    "groups": {},
    "files": {TARBALL: {"sha256": SUM, "problem": ""}, PACKAGE: {"sha256": SUM, "problem": ""}},
    "archive": {"mib": 9000, "problem": ""},
    "free_mib": 50000,
    "kernel": "6.8.0-90-generic",
    "headers": True,
    "programs": [],
    "card_users": [],
    "dtk_users": [],
    "services": [],
}


def said(id: str, facts: dict[str, Any] | None = None, **args: Any) -> Callable[[], list[dict[str, str]]]:
    """What forbids the steps of these facts and wishes, of one id."""
    seen, wanted = {**FACTS, **(facts or {})}, {**ARGS, **args}
    return lambda: [f for f in dtk.forbidden("box", seen, dtk.steps(seen, wanted), wanted) if f["id"] == id]


DRIVER: dict[str, Any] = {"tarball": "", "package": PACKAGE, "package_sha256": SUM}
CASES: list[tuple[str, Callable[[], list[dict[str, str]]], str, str, str]] = [
    (
        "DT-WANTED",
        lambda: dtk.wishes("box", {**ARGS, "dtk": "25.04"}),
        "box:hygon_dtk_tarball",
        "it is DTK 26.04, and modelyard_stack.dtk is 25.04",
        "name the same release at both places. Nothing was changed",
    ),
    (
        "DT-FILE",
        said("DT-FILE", {"files": {TARBALL: {"sha256": "", "problem": "it cannot be read: Permission denied"}}}),
        f"box:{TARBALL}",
        "it cannot be read: Permission denied",
        "bring the file, or correct its place in the inventory. Nothing was changed",
    ),
    (
        "DT-CHECKSUM",
        said("DT-CHECKSUM", {"files": {TARBALL: {"sha256": "cd" * 32, "problem": ""}}}),
        f"box:{TARBALL}",
        f"its SHA-256 is {'cd' * 32}, wanted is {SUM}",
        "fetch it again, and compare with the vendor's sum. Nothing was changed",
    ),
    (
        "DT-TARBALL",
        said("DT-TARBALL", {"archive": {"mib": 1, "problem": "it has /etc/passwd, which lies outside"}}),
        f"box:{TARBALL}",
        "it has /etc/passwd, which lies outside",
        "use the vendor's own file. Nothing was changed",
    ),
    (
        "DT-ROOT",
        said("DT-ROOT", {"uid": 1000, "user": "llm", "pointer": {"kind": "link", "version": "25.04"}}),
        "box",
        f"user llm is not root, and this is left to do: unpack {TARBALL} to /opt/dtk-26.04",
        "run with -e hygon_dtk_become=true (sudo). Nothing was changed",
    ),
    (
        "DT-ROOM",
        said("DT-ROOM", {"free_mib": 100}),
        "box:/opt",
        "100 MiB are free, 10024 MiB are wanted for unpacking",
        "make room there. Nothing was changed",
    ),
    (
        "DT-FOREIGN",
        said("DT-FOREIGN", {"pointer": {"kind": "folder", "version": "25.04"}}, state="pinned"),
        "box:/opt/dtk",
        "it is a folder and no link: somebody has unpacked a DTK right there",
        "move it to /opt/dtk-RELEASE yourself, and run again. Nothing was changed",
    ),
    (
        "DT-IN-USE",
        said("DT-IN-USE", {"driver": {"loaded": "", "on_disk": ""}, "card_users": ["pid 7 of user eve (python)"]}, **DRIVER),
        "box",
        "1 process(es) have a card open: pid 7 of user eve (python)",
        "ask them, or wait. Nothing was changed",
    ),
    (
        "DT-TOOLS",
        said("DT-TOOLS", {"driver": {"loaded": "", "on_disk": ""}, "headers": False, "programs": ["gcc", "cmake"]}, **DRIVER),
        "box",
        "the module is built on the host, which lacks gcc, cmake, headers of kernel 6.8.0-90-generic",
        "install them with the system's packages. Nothing was changed",
    ),
    (
        "DT-FAILED",
        lambda: [dtk.failed("box", "No space left on device", [dtk.Step("unpack", "")])],
        "box",
        "No space left on device; done before: unpack",
        "correct it and run again: it goes on from there",
    ),
    (
        "DT-RELOAD",
        lambda: [dtk.not_running("box", dtk.reload_reason({"loaded": "6.2.26", "on_disk": "6.3.13-V1.12.0"}, PACKAGE))],
        "box",
        "installed, and not running yet: driver 6.2.26 is loaded, 6.3.13-V1.12.0 is installed",
        "when nobody uses the cards, an admin unloads the old module and loads the new one, or reboots the host. "
        "Nothing was unloaded or rebooted",
    ),
]
