"""A runtime from a vendor's files: pip, the environment and the phases are real, the files stand in for Hygon's.

Names, versions, tags, what torch says of itself and that nothing imports without what DTK's env.sh sets are as theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import wheelhouse
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables, vendor
from ansible_collections.modelyard.core.plugins.module_utils.process import runtime
from ansible_collections.modelyard.core.plugins.module_utils.survey import runtimes
from ansible_collections.modelyard.core.plugins.plugin_utils.wheels import Target
from harness import BIN, ROOT, WORKER, free_port
from packages import pip_takes_from, wheel
from simulators.engine import install as engine
from simulators.install import install as install_cards

NAME = "vllm-dtk26.04-0.11.0"
SHORT = f"3.{sys.version_info.minor}"
TAG = f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-manylinux_2_28_x86_64"
LOCK = "transformers==5.0\n"
TOOLKIT = {"LD_LIBRARY_PATH": "/opt/dtk/lib"}
NEEDS = "import os\nassert 'dtk' in os.environ.get('LD_LIBRARY_PATH', ''), 'libgalaxyhip.so.5: cannot open shared object file'\n"
TORCH = f"{NEEDS}__version__ = '2.9.0'\n_C = None\nclass version: cuda = None; hip = '6.3.26093'\n"


def known(*files: str) -> tables.Runtime:
    real = tables.runtime(NAME)
    assert real is not None
    changed = vendor.chosen(real._replace(lock=LOCK, pythons=(SHORT,), disk_mib=1), files)
    assert changed is not None
    return changed


def put(folder: Path, name: str, version: str, torch: str = TORCH) -> Path:
    """One of the vendor's, as small as it can be."""
    content = {
        "torch": {"torch/__init__.py": torch, "torch/lib/libtorch_stand_in.so": "mapped by the stand-in's processes\n"},
        "vllm": {
            "vllm/__init__.py": f"import torch\n__version__ = {version!r}\n",
            **{f"vllm/entrypoints/{place}": "" for place in ("__init__.py", "cli/__init__.py", "cli/main.py")},
        },
    }.get(name, {f"{name}/__init__.py": ""})
    # What theirs was seen to ask for beside what it was served with.
    requires = "Requires-Dist: flash-mla\nRequires-Dist: lmslim==0.3.1\n" if name == "vllm" else ""
    return wheel(folder, name, version, content, requires, TAG)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The vendor's files, in folders. pip knows a place where packages of the same names for CUDA lie, too."""
    place, index = tmp_path / "hygon", tmp_path / "index"
    for part in (place / "torch", index):
        part.mkdir(parents=True)
    for found in vendor.wanted(known(), SHORT):
        name = found.file.partition("-")[0]
        put(place / "torch" if name == "torch" else place, name, found.version)
    wheel(index, "torch", "2.14.0", {"torch/__init__.py": "raise ImportError('this is for CUDA')\n"})
    wheel(index, "vllm", "0.11.2", {"vllm/__init__.py": "raise ImportError('this is for CUDA')\n"})
    wheel(index, "transformers", "5.0", {"transformers/__init__.py": "AutoTokenizer = 1\n"}, "Requires-Dist: torch\n")
    pip_takes_from(index, monkeypatch)
    return place


def making(tmp_path: Path, folder: Path, wheels: str = "", one: tables.Runtime | None = None) -> runtime.Making:
    one = one or known()
    seen = {"files": {str(path.relative_to(folder)): "" for path in folder.rglob("*.whl")}}
    return runtime.Making(
        path=str(tmp_path / "runtimes" / "one"),
        lock=one.lock,
        digest=one.digest,
        python=sys.executable,
        torch_packages=[],
        torch_index_url="",
        index_url="",
        find_links="",
        wheelhouse=wheels,
        expect=one.expect,
        check="",
        metadata_shim={},
        left_out=[],
        run="a",
        vendor=vendor.places(one, SHORT, wheels or str(folder), {} if wheels else seen),
        environment=TOOLKIT,
    )


def make(one: runtime.Making, *phases: str) -> None:
    for phase in phases or ("begin", "torch", "packages", "finish"):
        one.do(phase)


def test_it_is_made_of_these_files_alone_and_proven_with_what_the_toolkit_sets(tmp_path: Path, folder: Path) -> None:
    one = making(tmp_path, folder)
    make(one)
    made = json.loads((Path(one.path) / "modelyard.json").read_text())
    assert made["says"]["hip"] == "6.3.26093"
    assert made["says"]["versions"]["vllm"] == "0.11.0+das.opt1.dtk2604.torch290"
    assert sorted(made["vendor"]) == sorted(found.file for found in vendor.wanted(known(), SHORT))
    assert all(len(text) == 64 for text in made["vendor"].values())
    log = one.log.read_text()
    assert "requires flash-mla, which is not installed" in log  # written down, and refuses nothing
    assert "has requirement lmslim==0.3.1" in log
    assert "2.14.0" not in log
    # A survey imports it as an engine would.
    (Path(one.path) / "modelyard.json").write_text(json.dumps({**made, "seal": ""}))
    assert "libgalaxyhip" in runtimes.runtime(one.path, full=True)["error"]
    assert runtimes.runtime(one.path, full=True, toolkit=TOOLKIT)["error"] == ""


@pytest.mark.further
@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (
            TORCH.replace("cuda = None; hip = '6.3.26093'", "cuda = '12.8'; hip = None"),
            "cuda is 12.8, wanted none; hip is none, wanted any",
        ),
        (TORCH.replace("'2.9.0'", "'2.7.1+das.opt1.dtk2604'"), r"torch is 2\.7\.1\+das\.opt1\.dtk2604, wanted 2\.9\.0"),
    ],
)
def test_another_torch_under_the_right_name_is_refused(tmp_path: Path, folder: Path, torch: str, words: str) -> None:
    put(folder / "torch", "torch", "2.9.0+das.opt1.dtk2604", torch)
    one = making(tmp_path, folder)
    with pytest.raises(runtime.RuntimeFailed, match=words):
        make(one)
    assert not one.complete()


@pytest.mark.further
def test_a_wheelhouse_holds_the_files_too(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = next((folder / "torch").glob("*.whl"))
    away = gone.rename(tmp_path / gone.name)
    host = Target(SHORT, "2.36", "x86_64")
    with pytest.raises(wheelhouse.Failed, match=r"torch-2\.9\.0.*it is not there"):
        wheelhouse.make(known(), host, tmp_path / "to", "", "", folder)
    away.rename(gone)
    made = wheelhouse.make(known(), host, tmp_path / "to", "", "", folder)
    assert len(list(made.glob("*.whl"))) == len(known().vendor) + 1
    shutil.rmtree(folder)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    one = making(tmp_path, folder, str(made))
    make(one)
    assert one.complete()


def checkout(tmp_path: Path) -> Path:
    """This project with a lock that is small enough to be installed in a test."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("collections", ".git"):
            (copy / path.name).symlink_to(path)
    shutil.copytree(ROOT / "collections", copy / "collections", ignore=shutil.ignore_patterns("__pycache__"))
    runtimes_data = "collections/ansible_collections/modelyard/core/plugins/module_utils/plan/data/runtimes"
    (copy / runtimes_data / "vllm-dtk-0.11.0.txt").write_text(LOCK)
    return copy


@pytest.mark.further
@pytest.mark.skipif(SHORT not in ("3.10", "3.11"), reason="the vendor's files are for Python 3.10 and 3.11")
def test_a_deploy_goes_from_the_vendors_files_to_an_engine_on_simulated_dcus(tmp_path: Path, folder: Path) -> None:
    sim = install_cards(tmp_path / "sim", "8xk100ai")
    toolkit = sim.root / "opt/dtk-26.04"
    toolkit.mkdir(parents=True)
    (toolkit / "env.sh").write_text("export LD_LIBRARY_PATH=/opt/dtk/lib:$LD_LIBRARY_PATH\n")
    (sim.root / "opt/dtk").symlink_to("dtk-26.04")
    files = {found.name: found for found in vendor.wanted(known(), SHORT)}
    content = {name: text for name, text in engine.PACKAGES.items() if name.startswith("vllm/")}
    content["vllm/__init__.py"] = f"import torch\n__version__ = {files['vllm'].version!r}\n"
    content |= {f"vllm/stand_in/{path.name}": path.read_text() for path in Path(engine.HERE).glob("*.py")}
    content["vllm/stand_in/options.json"] = json.dumps(tables.vllm(files["vllm"].version)["options"])
    data = f"vllm-{files['vllm'].version}.data"
    content[f"{data}/data/stand-in.json"] = json.dumps({"sysroot": str(sim.root), "load_s": 0.2, "dead_s": 0.5})
    content[f"{data}/scripts/vllm"] = engine.COMMAND.replace("{folder}/bin/", "")
    wheel(folder, "vllm", files["vllm"].version, content, "", TAG)
    service = {
        "name": f"dcu-{WORKER}",
        "backend": "hygon",
        "model": {"id": "tiny", "path": str(engine.make_model(tmp_path / "model"))},
        "topology": {"replicas": 1, "tensor_parallel_size": 1},
        "listen": {"base_port": free_port()},
        "engine": {"max_model_len": 4096},
        "acceptance": {"serial_requests": 2},
    }
    values = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "modelyard_home": str(tmp_path / "home"),
        "modelyard_sysroot": str(sim.root),
        "modelyard_tool_path": [str(sim.bin)],
        "modelyard_python": sys.executable,
        "modelyard_vendor_wheels": str(folder),
        "modelyard_checks": {"PF-MEMORY": "note", "PF-DISK": "note"},
        "modelyard_services": [service],
        "card_test_enabled": False,
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"host-a": values}}}))

    def play(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "ansible-playbook"), "-i", str(tmp_path / "hosts.yml"), f"playbooks/{name}.yml", *words]
        here = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(copy / "collections"),
        }
        return subprocess.run(command, cwd=copy, env=here, capture_output=True, text=True, check=False)

    copy = checkout(tmp_path)
    gone = (folder / files["lmslim"].file).rename(tmp_path / files["lmslim"].file)
    refused = play("deploy")
    assert refused.returncode != 0
    assert f"PF-VENDOR-WHEELS  host-a:{folder}/{gone.name}" in refused.stdout, refused.stdout[-4000:]
    assert not (tmp_path / "home/runtimes").exists()
    gone.rename(folder / gone.name)
    try:
        done = play("deploy")
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr
        (place,) = (tmp_path / "home/runtimes").glob(f"{NAME}-py{SHORT}-*/")
        state = json.loads((tmp_path / f"home/services/{service['name']}/instance-0/run/state.json").read_text())
        started = Path(f"/proc/{state['leader']['pid']}/environ").read_bytes().decode().split("\0")
        assert "LD_LIBRARY_PATH=/opt/dtk/lib:" in started
        assert f"{place}/bin/vllm".encode() in Path(f"/proc/{state['leader']['pid']}/cmdline").read_bytes()
        shutil.rmtree(folder)  # it has done its work
        again = play("deploy")
        assert "changed=0 " in again.stdout, again.stdout[-4000:]
    finally:
        ended = play("teardown")
    assert ended.returncode == 0, ended.stdout[-4000:]
