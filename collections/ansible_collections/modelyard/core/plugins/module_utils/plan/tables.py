"""The knowledge tables beside this file, read on the control node only (Ansible ships only Python files to hosts)."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import yaml

DATA = Path(__file__).parent / "data"


class Runtime(NamedTuple):
    """A runtime that can be made: its lock and what is known about it."""

    name: str
    lock: str
    variant: str
    vllm_release: str
    pythons: Tuple[str, ...]
    torch_packages: Tuple[str, ...]
    metadata_shim: Optional[Dict[str, str]]
    left_out: Tuple[str, ...]
    disk_mib: int

    @property
    def digest(self) -> str:
        """SHA-256 of the lock's requirement lines: comments don't make another runtime."""
        lines = [x.strip() for x in self.lock.splitlines() if x.strip() and not x.lstrip().startswith("#")]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def read_yaml(path: Path) -> Dict[str, Any]:
    """A mapping from a YAML file, read once in a process. Whoever gets it must not change it."""
    # With libyaml this takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data: Dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return data


def runtime_names() -> List[str]:
    """Runtimes that have a lock file."""
    return sorted(p.stem for p in (DATA / "runtimes").glob("*.txt"))


@functools.cache
def runtime(name: str) -> Optional[Runtime]:
    """A runtime by the name of its lock file; None when there is none."""
    lock = DATA / "runtimes" / f"{name}.txt"
    if not lock.is_file():
        return None
    facts = read_yaml(lock.with_suffix(".yml"))
    return Runtime(
        name=name,
        lock=lock.read_text(encoding="utf-8"),
        variant=facts["variant"],
        vllm_release=facts["vllm_release"],
        pythons=tuple(facts["python"]),
        torch_packages=tuple(facts["torch_packages"]),
        metadata_shim=facts.get("metadata_shim"),
        left_out=tuple(facts.get("left_out", ())),
        disk_mib=int(facts["disk_mib"]),
    )


def vllm(release: str) -> Dict[str, Any]:
    """Options of one vLLM release: {release, removed, owned, options: {switch, flag, value, list}}."""
    return read_yaml(DATA / "vllm" / f"{release}.yml")


def backend(name: str) -> Dict[str, Any]:
    """What a backend needs: environment, memory figures, how cards are named."""
    return dict(read_yaml(DATA / "backends.yml")[name])


def read_all() -> None:
    """Read every table that a plan may need, for processes that are made from this one."""
    read_yaml(DATA / "backends.yml")
    for path in (DATA / "vllm").glob("*.yml"):
        read_yaml(path)
    for name in runtime_names():
        runtime(name)


def accelerators() -> Dict[str, Dict[str, Any]]:
    """The backends that have cards of their own, with all that a host must know to look at them."""
    return {name: backend(name) for name in backends() if not backend(name).get("cores_as_cards")}


def backends() -> List[str]:
    """Backends that can be planned for."""
    return sorted(read_yaml(DATA / "backends.yml"))
