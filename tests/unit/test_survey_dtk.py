"""Hygon's toolkit on a host: which ones, and what env.sh sets when nobody else can have written it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import dtk, host

#: As the vendor's: variables that are not set, folders before PATH, output, and a choice of cards.
ENV = """
export ROCM_PATH=/opt/dtk
export PATH=${ROCM_PATH}/bin:$PATH
export LD_LIBRARY_PATH=${ROCM_PATH}/lib:${LD_LIBRARY_PATH}
export HIP_VISIBLE_DEVICES=0
unset_is_no_error=$NOBODY_HAS_SET_THIS
echo welcome; echo to >&2
read -r answer && export ANSWER=$answer
"""


def place(root: Path, text: str | None, version: str = "26.04") -> Path:
    folder = root / f"opt/dtk-{version}"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "env.sh").write_text(text, encoding="utf-8")
        (folder / "env.sh").chmod(0o644)
    (root / "opt/dtk").symlink_to(folder.name)
    return folder


@pytest.fixture(autouse=True)
def others_cannot_write() -> None:
    os.umask(0o022)


@pytest.mark.parametrize(("file", "version"), [("DTK-25.04.1\n", "25.04.1"), ("DTK-26.04-rc4\n", "26.04"), (None, "24.04.1")])
def test_dtk_by_its_own_file_or_by_the_name_of_its_folder(tmp_path: Path, file: str | None, version: str) -> None:
    folder = place(tmp_path, None, "24.04.1")
    (tmp_path / "opt/dtk-23.04").mkdir()
    if file:
        (folder / ".dtk_version").write_text(file, encoding="utf-8")
    found = dtk.look(str(tmp_path))
    assert (found["path"], found["version"]) == ("/opt/dtk", version)
    assert found["beside"] == {"/opt/dtk-23.04": "23.04", "/opt/dtk-24.04.1": version}
    assert "there is no " in found["problem"]
    assert dtk.look(str(tmp_path / "other")) == dtk.NONE


def test_what_it_sets_is_data_and_nothing_of_this_process_comes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/home/me/lib")
    monkeypatch.setenv("MY_SECRET", "s")
    place(tmp_path, ENV)
    found = dtk.look(str(tmp_path))
    assert found["problem"] == ""
    assert found["environment"] == {"ROCM_PATH": "/opt/dtk", "PATH": "/opt/dtk/bin", "LD_LIBRARY_PATH": "/opt/dtk/lib:"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 0\n", "the shell ended with 0 before it was through"),
        ("kill -9 $$\n", "the shell ended with -9 before it was through"),
        ("export A='a\nb'\n", "sets A to something with line breaks"),
        ("sleep 60\n", "had not ended after 1 s and was killed"),
        ("if\n", "the shell ended with 2 before it was through"),
    ],
)
def test_one_that_misbehaves_is_bounded_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    monkeypatch.setattr(dtk, "LIMIT_S", 1)
    began = time.monotonic()
    place(tmp_path, text)
    found = dtk.look(str(tmp_path))
    assert words in found["problem"]
    assert found["environment"] == {}
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("which", ["env.sh", ".", ".."])
def test_nothing_is_run_that_others_could_have_written(tmp_path: Path, which: str) -> None:
    folder = place(tmp_path, f"touch {tmp_path}/ran\n")
    open_place = (folder / which).resolve()
    open_place.chmod(0o777)
    found = dtk.look(str(tmp_path))
    assert f"is not run: {open_place} can be written by others (mode 0777)" in found["problem"]
    assert not (tmp_path / "ran").exists()
    open_place.chmod(0o755)
    assert dtk.look(str(tmp_path))["problem"] == ""
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody")
def test_nothing_of_another_user_is_run(tmp_path: Path) -> None:
    folder = place(tmp_path, f"touch {tmp_path}/ran\n")
    os.chown(folder / "env.sh", 65534, 65534)
    assert "env.sh belongs to nobody" in dtk.look(str(tmp_path))["problem"]
    assert not (tmp_path / "ran").exists()


def test_an_environment_is_looked_for_by_the_release_of_the_dtk(tmp_path: Path) -> None:
    place(tmp_path, None, "25.04.1")
    (tmp_path / "vllm-25.04.1").mkdir()
    wanted = [f"{tmp_path}/vllm-{{dtk}}"]
    seen = host.look(host.Request(str(tmp_path / "home"), runtimes=wanted, sysroot=str(tmp_path)))
    assert [(path, found["exists"]) for path, found in seen["runtimes"].items()] == [(f"{tmp_path}/vllm-25.04.1", True)]
    seen = host.look(host.Request(str(tmp_path / "home"), runtimes=wanted, sysroot=str(tmp_path / "other")))
    assert [found["exists"] for found in seen["runtimes"].values()] == [False]
