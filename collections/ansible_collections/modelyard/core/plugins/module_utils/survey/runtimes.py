"""Interpreters and runtimes of a host: what is there, and does it work? Standard library only."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import runtime_contents

QUICK_CHECK = (
    "import importlib.metadata as m, importlib.util as u;"
    "assert u.find_spec('vllm'), 'no package vllm';assert u.find_spec('torch'), 'no package torch';print(m.version('vllm'))"
)
FULL_CHECK = "import torch, vllm, vllm.entrypoints.cli.main;from transformers import AutoTokenizer;print(vllm.__version__)"
CHECK_LIMIT_S = 120
NAME = re.compile(r"(?:platform-)?python(3\.\d+)")
COMPLETE = "modelyard.json"  # written last into a runtime: without it the runtime is half-made


def python(path: str) -> Dict[str, str]:
    """The interpreter that runtimes are made with: path and version; the running one when `path` is empty."""
    if not path:
        return {
            "path": sys.executable,
            "version": platform.python_version(),
            "short": ".".join(platform.python_version_tuple()[:2]),
        }
    try:
        done = subprocess.run(
            [path, "-c", "import platform;print(platform.python_version())"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        version = done.stdout.strip()
    except (OSError, subprocess.SubprocessError) as exc:
        return {"path": path, "version": f"unknown ({exc})", "short": ""}
    return {"path": path, "version": version, "short": ".".join(version.split(".")[:2])}


def pythons(path: str) -> Dict[str, str]:
    """Interpreters in the folders of `path` (a PATH) by place, with the version that the program's real name tells.

    None of them is started: on many hosts one of them is a wrapper that does not work.
    """
    found: Dict[str, str] = {}
    for folder in dict.fromkeys([*path.split(":"), "/usr/bin", "/usr/local/bin", "/usr/libexec"]):
        try:
            names = [entry.name for entry in os.scandir(folder) if "python3" in entry.name] if folder.startswith("/") else []
        except OSError:
            continue
        for name in sorted(names):
            place = os.path.realpath(f"{folder}/{name}")
            match = NAME.fullmatch(place.rpartition("/")[2])
            if match and os.access(place, os.X_OK):
                found.setdefault(place, match.group(1))
    return found


def seal(path: str) -> str:
    """A hash over the folders of a runtime and when each was last changed; reads no file. Caches of byte code do not count.

    A package that was added, removed or replaced since changes it. A file that was written over in place does not, nor does what
    the host itself has lost.
    """
    found, waiting = hashlib.sha256(), [path]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            # The folder itself gets its last file after the seal was made.
            changed = 0 if folder == path else Path(folder).stat().st_mtime_ns
        except OSError as exc:
            return f"{folder}: {exc.strerror or exc}"  # fits no seal that was written down
        found.update(f"{os.path.relpath(folder, path)} {changed}\n".encode("utf-8", "surrogateescape"))
        waiting += [place for place in inner if not place.endswith("/__pycache__")]
    return found.hexdigest()


def environment(path: str, toolkit: Mapping[str, str]) -> Dict[str, str]:
    """With what a runtime is imported to prove it, as an engine will find it. `toolkit`: of DTK's env.sh, or nothing."""
    own = {"HOME": "/nonexistent", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    folders = [f"{path}/bin", toolkit["PATH"], "/usr/bin", "/bin"] if toolkit.get("PATH") else ["/usr/bin", "/bin"]
    return {**toolkit, **own, "PATH": ":".join(folders)}


def runtime(path: str, full: bool, toolkit: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """Is there a whole runtime, and can it import vllm? `full` imports it (seconds), else its packages are looked up.

    One of ours that is as it was when it was made and proven is not imported again.
    `contents`: what is installed in it, read from its files, so that it is known of one that cannot be imported as well.
    """
    folder = Path(path)
    found: Dict[str, Any] = {"exists": os.path.isdir(path), "complete": False, "error": "", "vllm": "", "contents": {}}
    if not found["exists"]:
        return found
    made = layout.read_json(folder / COMPLETE)
    found["complete"] = made is not None
    found["contents"] = runtime_contents.look(path)
    program = folder / "bin" / "python"
    if not os.access(str(program), os.X_OK):
        found["error"] = "there is no Python environment in this folder that this user may run (bin/python)"
        return found
    if made and made.get("check"):  # one without vLLM; it was proven when it was made, and no service runs from it
        return found
    full = full and not (made and made.get("seal") == seal(path))
    try:
        done = subprocess.run(
            [str(program), "-c", FULL_CHECK if full else QUICK_CHECK],
            capture_output=True,
            text=True,
            timeout=CHECK_LIMIT_S,
            check=False,
            env=environment(path, toolkit or {}),
        )
    except (OSError, subprocess.SubprocessError) as exc:
        found["error"] = f"{program}: {exc}"
        return found
    if done.returncode == 0:
        found["vllm"] = done.stdout.strip().splitlines()[-1]
    else:
        found["error"] = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return found
