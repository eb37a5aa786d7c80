"""What is to be done for Hygon's driver and DTK, and what forbids it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import dtk
from ansible_collections.modelyard.core.plugins.module_utils.plan.dtk import Member
from unit.dtk_cases import ARGS, FACTS, PACKAGE, SUM, TARBALL

NO_DRIVER = {"loaded": "", "on_disk": ""}
OLD = {"loaded": "6.2.26-V1.5", "on_disk": "6.2.26-V1.5"}
DRIVER = {"package": PACKAGE, "package_sha256": SUM}
BESIDE = {"/opt/dtk-26.04": "26.04", "/opt/dtk-25.04": "25.04"}
TO_OLD = {"kind": "link", "version": "25.04"}


@pytest.mark.parametrize(
    ("name", "dtk_release", "driver"),
    [
        ("DTK-24.04.1-CentOS7.6-x86_64.tar.gz", "24.04.1", ""),
        ("/srv/a/DTK-26.04-rc4-Ubuntu22.04.tgz", "26.04", ""),
        ("rock-5.7.1-6.2.26-V1.5.run", "", "6.2.26-V1.5"),
        ("rock-6.3.13-V1.12.0.run", "", "6.3.13-V1.12.0"),
        ("rock-6.3.16-V1.1.0a.aio.run", "", "6.3.16-V1.1.0a"),
        ("dtk.tar.gz", "", ""),
        ("rock.run", "", ""),
    ],
)
def test_the_vendors_names_say_what_they_are(name: str, dtk_release: str, driver: str) -> None:
    assert (dtk.dtk_of(name), dtk.driver_of(name)) == (dtk_release, driver)


@pytest.mark.parametrize(
    ("args", "facts", "kinds"),
    [
        ({}, {}, ["unpack", "point"]),
        ({}, {"beside": BESIDE, "pointer": TO_OLD}, []),  # one that is there stays in use
        ({}, {"beside": {"/opt/dtk-25.04": "25.04"}, "pointer": TO_OLD}, ["unpack"]),
        ({"state": "pinned"}, {"beside": BESIDE, "pointer": TO_OLD}, ["point"]),
        ({"state": "pinned"}, {"beside": BESIDE, "pointer": {"kind": "link", "version": "26.04"}}, []),
        ({"tarball": "", **DRIVER}, {}, []),
        ({"tarball": "", **DRIVER}, {"driver": OLD}, []),
        ({"tarball": "", **DRIVER}, {"driver": NO_DRIVER}, ["driver"]),
        ({"tarball": "", **DRIVER, "state": "pinned"}, {"driver": OLD}, ["driver"]),
        # Only the numbers up to -V are compared.
        ({"tarball": "", **DRIVER, "state": "pinned"}, {"driver": {"loaded": "", "on_disk": "6.3.13"}}, []),
        ({"tarball": "", "users": ["llm", "ops"]}, {"groups": {"llm": ["llm"], "ops": ["video"]}}, ["groups"]),
        (DRIVER, {"driver": NO_DRIVER}, ["driver", "unpack", "point"]),
    ],
)
def test_only_what_is_left_to_do_is_a_step(args: dict[str, Any], facts: dict[str, Any], kinds: list[str]) -> None:
    assert [step.kind for step in dtk.steps({**FACTS, **facts}, {**ARGS, **args})] == kinds


@pytest.mark.parametrize(
    ("args", "facts", "ids"),
    [
        ({}, {}, []),
        ({}, {"uid": 1000, "user": "llm"}, ["DT-ROOT"]),
        ({}, {"files": {TARBALL: {"sha256": "", "problem": "it cannot be read"}}}, ["DT-FILE"]),
        ({}, {"files": {TARBALL: {"sha256": "cd" * 32, "problem": ""}}}, ["DT-CHECKSUM"]),
        ({}, {"files": {TARBALL: {"sha256": "", "problem": ""}}}, []),  # on a mirror, and in check mode
        ({}, {"archive": {"mib": 10, "problem": "a lies outside"}}, ["DT-TARBALL"]),
        ({}, {"free_mib": 10023}, ["DT-ROOM"]),
        ({}, {"free_mib": 10024}, []),
        ({"state": "pinned"}, {"beside": BESIDE, "pointer": {"kind": "folder", "version": "25.04"}}, ["DT-FOREIGN"]),
        ({"state": "pinned"}, {"beside": BESIDE, "pointer": TO_OLD, "dtk_users": ["pid 7"]}, ["DT-IN-USE"]),
        # Unpacking beside disturbs nobody.
        ({}, {"pointer": TO_OLD, "dtk_users": ["pid 7"], "card_users": ["pid 7"], "services": ["a"]}, []),
        (
            {"tarball": "", **DRIVER},
            {"driver": NO_DRIVER, "card_users": ["pid 7"], "services": ["a"], "headers": False, "programs": ["gcc"]},
            ["DT-IN-USE", "DT-IN-USE", "DT-TOOLS"],
        ),
        ({"tarball": "", **DRIVER, "answers": []}, {"driver": NO_DRIVER, "headers": None}, ["DT-WANTED"]),
        ({"tarball": "", "users": ["eve"]}, {"groups": {"eve": None}}, ["DT-WANTED"]),
        # All at once.
        (
            {},
            {"uid": 1, "files": {TARBALL: {"sha256": "c", "problem": ""}}, "free_mib": 1},
            ["DT-ROOT", "DT-CHECKSUM", "DT-ROOM"],
        ),
    ],
)
def test_what_forbids_a_step_is_told_and_nothing_else(args: dict[str, Any], facts: dict[str, Any], ids: list[str]) -> None:
    seen, wanted = {**FACTS, **facts}, {**ARGS, **args}
    found = dtk.forbidden("box", seen, dtk.steps(seen, wanted), wanted)
    assert [f["id"] for f in found] == ids
    assert all(f["do"].endswith("Nothing was changed") for f in found)


def test_a_wrong_sum_is_told_with_both_values() -> None:
    seen = {**FACTS, "files": {TARBALL: {"sha256": "cd" * 32, "problem": ""}}}
    (found,) = dtk.forbidden("box", seen, dtk.steps(seen, ARGS), ARGS)
    assert (found["where"], found["what"]) == (f"box:{TARBALL}", f"its SHA-256 is {'cd' * 32}, wanted is {SUM}")


def test_what_the_inventory_cannot_mean_is_told_all_at_once() -> None:
    assert dtk.wishes("box", ARGS) == []
    wrong = {**ARGS, "dtk": "25.04", "sha256": "", "package": "/srv/driver.run", "package_sha256": "x"}
    found = [(f["id"], f["where"]) for f in dtk.wishes("box", wrong)]
    names = ["hygon_dtk_driver", "hygon_dtk_tarball", "hygon_dtk_sha256", "hygon_dtk_driver_sha256"]
    assert found == [("DT-WANTED", f"box:{name}") for name in names]
    (found_one,) = dtk.wishes("box", {**ARGS, "tarball": "https://me:secret@mirror/DTK-26.04.tgz"})
    assert "holds a password" in found_one["what"]
    assert "secret" not in str(found_one)
    assert [f["where"] for f in dtk.wishes("box", {**ARGS, "dtk": ""})] == ["box:modelyard_stack.dtk"]
    assert [f["where"] for f in dtk.wishes("box", {**ARGS, "tarball": ""})] == ["box:hygon_dtk_state"]


FILE = Member("dtk/bin/hipcc", "file", 3 * 2**20)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([Member("dtk", "folder"), FILE, Member("dtk/lib/a.so", "link", 0, "../bin/hipcc")], ("dtk", 3, "")),
        ([Member("./dtk/x", "file", 1)], ("dtk", 1, "")),
        ([FILE, Member("other/x", "file")], ("", 3, "it has 2 entries on top instead of one folder")),
        ([], ("", 0, "it has 0 entries on top instead of one folder")),
        ([Member("/etc/passwd", "file")], ("", 0, "it has /etc/passwd, which lies outside")),
        ([Member("dtk/../../etc/passwd", "file")], ("", 0, "it has dtk/../../etc/passwd, which lies outside")),
        ([Member("dtk/a", "link", 0, "/etc")], ("", 0, "dtk/a is a link to /etc, which lies outside")),
        ([Member("dtk/a", "link", 0, "../../x")], ("", 0, "dtk/a is a link to ../../x, which lies outside")),
        ([Member("dtk/a", "hardlink", 0, "../x")], ("", 0, "dtk/a is a link to ../x, which lies outside")),
        # Links of links lead elsewhere than their names say.
        ([Member("dtk/a", "link", 0, "."), Member("dtk/a/a/x", "link", 0, "../../y")], ("", 0, "dtk/a/a/x lies behind a link")),
        ([Member("dtk/null", "other")], ("", 0, "dtk/null is neither file, folder nor link")),
    ],
)
def test_nothing_of_an_archive_may_land_outside_of_its_folder(members: list[Member], expected: tuple[str, int, str]) -> None:
    assert dtk.judge_members(members) == expected


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ({"loaded": "6.3.13-V1.12.0", "on_disk": "6.3.13-V1.12.0"}, ""),
        ({"loaded": "6.2.26-V1.5", "on_disk": "6.3.13-V1.12.0"}, "driver 6.2.26-V1.5 is loaded, 6.3.13-V1.12.0 is installed"),
        ({"loaded": "", "on_disk": "6.3.13-V1.12.0"}, "driver none is loaded, 6.3.13-V1.12.0 is installed"),
        ({"loaded": "6.2.26", "on_disk": "6.2.26"}, ""),  # it was not changed
    ],
)
def test_a_driver_that_does_not_run_yet_is_said(driver: dict[str, str], words: str) -> None:
    assert dtk.reload_reason(driver, PACKAGE) == words
