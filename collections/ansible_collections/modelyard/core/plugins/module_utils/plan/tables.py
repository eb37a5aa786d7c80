"""The knowledge tables beside this file, read on the control node only (Ansible ships only Python files to hosts)."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import yaml
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import Build, bench_table, order, table

DATA = Path(__file__).parent / "data"


class Runtime(NamedTuple):
    """A runtime that can be made: its lock and what is known about it (data/runtimes/NAME.yml).

    `variant` is the backend whose services it serves; empty for one without vLLM, beside them. `glibc` is the least that its
    wheels ask for. `expect` is what the installed packages must say of themselves, `check` the import that proves it.
    `libraries` are those of the host that its wheels load and do not bring: {name: the packages that have it}.
    `vendor`: file names of wheels that are on no index, with `{cp}` for the tag of the Python (plan/vendor.py).
    `dtk`: the release of Hygon's DTK that they are built for.
    """

    name: str
    lock: str
    variant: str
    vllm_release: str
    pythons: Tuple[str, ...]
    torch_packages: Tuple[str, ...]
    metadata_shim: Optional[Dict[str, str]]
    left_out: Tuple[str, ...]
    disk_mib: int
    glibc: str
    machines: Tuple[str, ...]
    expect: Dict[str, str]
    check: str
    libraries: Dict[str, str]
    vendor: Tuple[str, ...] = ()
    dtk: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the lock's requirement lines and the vendor's files: comments don't make another runtime."""
        lines = [x.strip() for x in self.lock.splitlines() if x.strip() and not x.lstrip().startswith("#")]
        return hashlib.sha256("\n".join([*lines, *self.vendor]).encode()).hexdigest()


@functools.cache
def read_yaml(path: Path) -> Dict[str, Any]:
    """A mapping from a YAML file, read once in a process. Whoever gets it must not change it."""
    # With libyaml this takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data: Dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return data


def runtime_names() -> List[str]:
    """Runtimes that can be made."""
    return sorted(p.stem for p in (DATA / "runtimes").glob("*.yml"))


@functools.cache
def runtime(name: str) -> Optional[Runtime]:
    """A runtime by its name; None when there is none. Its lock has the same name, or the one that its facts say."""
    said = DATA / "runtimes" / f"{name}.yml"
    if not said.is_file():
        return None
    facts = read_yaml(said)
    platform = facts.get("vendor_platform", "")
    return Runtime(
        name=name,
        lock=said.with_name(f"{facts.get('lock', name)}.txt").read_text(encoding="utf-8"),
        variant=facts["variant"],
        vllm_release=facts.get("vllm_release", ""),
        pythons=tuple(facts["python"]),
        torch_packages=tuple(facts["torch_packages"]),
        metadata_shim=facts.get("metadata_shim"),
        left_out=tuple(facts.get("left_out", ())),
        disk_mib=int(facts["disk_mib"]),
        glibc=facts["glibc"],
        machines=tuple(facts["machines"]),
        expect=dict(facts["expect"]),
        check=facts.get("check", ""),
        libraries=dict(facts.get("libraries", {})),
        vendor=tuple(f"{key}-{text}-{{cp}}-{{cp}}-{platform}.whl" for key, text in sorted(facts.get("vendor", {}).items())),
        dtk=facts.get("dtk", ""),
    )


def releases() -> List[str]:
    """The vLLM releases that are known, oldest first."""
    return list(read_yaml(DATA / "vllm" / "options.yml")["releases"])


def near_releases(release: str) -> List[str]:
    """The known releases around one that is not known: the last before it and the first after it."""
    before = [known for known in releases() if order(known) < order(release)]
    return before[-1:] + [known for known in releases() if order(known) > order(release)][:1]


def build(version: str) -> Optional[Build]:
    """What a version says, `0.32.0+cpu` for example; None for a release without a table, or for a build that nobody described."""
    release, _, local = version.partition("+")
    if release not in releases():
        return None
    if not local:
        return Build(release, "", "", {}, {})
    for known in read_yaml(DATA / "vendor_builds.yml")["builds"]:
        if re.fullmatch(known["local"], local):
            return Build(release, known["backend"], known.get("vendor", ""), known.get("options", {}), known.get("facts", {}))
    return None


@functools.cache
def vllm(version: str) -> Dict[str, Any]:
    """The table of one vLLM version (vllm_table.py says what is in it). Whoever gets it must not change it."""
    options, facts, metrics = (read_yaml(DATA / "vllm" / f"{name}.yml") for name in ("options", "facts", "metrics"))
    return table(version, build(version), options["options"], facts, metrics)


def bench(version: str) -> Dict[str, Any]:
    """What is known of `vllm bench serve` of a version (data/vllm/bench.yml); empty for a version without a table."""
    known = build(version)
    return bench_table(known.release, read_yaml(DATA / "vllm" / "bench.yml")) if known else {}


def architectures() -> Dict[str, Any]:
    """Architectures that vLLM serves by release (data/vllm/architectures.yml). Whoever gets them must not change them."""
    return read_yaml(DATA / "vllm" / "architectures.yml")


def memory() -> Dict[str, Any]:
    """Rules and estimates of the memory plan (data/memory.yml). Whoever gets them must not change them."""
    return read_yaml(DATA / "memory.yml")


@functools.cache
def stack() -> Dict[str, Any]:
    """All tables about what fits what (plan/stack): {drivers, cards, cuda, torch, packages, pins, hygon}. Not to be changed."""
    nvidia = {name: read_yaml(DATA / "nvidia" / f"{name}.yml") for name in ("drivers", "cards", "cuda", "torch", "packages")}
    return {**nvidia, "pins": read_yaml(DATA / "vllm" / "pins.yml"), "hygon": read_yaml(DATA / "hygon" / "stack.yml")}


def backend(name: str) -> Dict[str, Any]:
    """What a backend needs: environment, memory figures, how cards are named."""
    return dict(read_yaml(DATA / "backends.yml")[name])


def read_all() -> None:
    """Read every table that a plan may need, for processes that are made from this one."""
    read_yaml(DATA / "backends.yml")
    memory()
    architectures()
    for release in {str(backend(name)["vllm_release"]) for name in backends()}:
        vllm(release)
    for name in runtime_names():
        runtime(name)
    stack()


def accelerators() -> Dict[str, Dict[str, Any]]:
    """The backends that have cards of their own, with all that a host must know to look at them."""
    return {name: backend(name) for name in backends() if not backend(name).get("cores_as_cards")}


def backends() -> List[str]:
    """Backends that can be planned for."""
    return sorted(read_yaml(DATA / "backends.yml"))
