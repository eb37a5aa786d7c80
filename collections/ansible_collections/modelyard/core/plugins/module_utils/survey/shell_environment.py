"""Proxies and lists of visible cards that a session has, or gets from the files that shells and pip read.

Reads only; standard library only. Shell files are read and never run. The launch script of a service starts from an empty
environment, so this concerns what people and installations do on the host.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.survey import proxies, shell_text
from ansible_collections.modelyard.core.plugins.module_utils.survey.shell_text import PIP

SESSION = "environment of the session"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", PIP)
VISIBILITY = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HYGON_VISIBLE_DEVICES"),
)
OF_INTEREST = re.compile(r"(?i)proxy|visible_devices|gpu_device_ordinal")
FILES = (
    *("/etc/environment", "/etc/environment.d/*.conf", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/etc/bashrc"),
    *("~/.profile", "~/.bash_profile", "~/.bashrc", "~/.zshenv", "~/.zshrc", "~/.config/environment.d/*.conf"),
    *("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"),
)
FILE_BYTES = 2**18


def look(environ: Mapping[str, str], home: str, files: Sequence[str] = FILES, limit_s: float = 1.0) -> Dict[str, Any]:
    """survey["environment"].

    `environ`: the environment of this session. `home`: the account's own folder, for the names in `files` that begin with ~.
    A value that an assignment further down in the same file replaces or unsets is left out; so is what only a function sets.
    `proxies`: `answers` is None with `why` beginning with "not asked" when nobody was asked: never take that for a dead proxy.
    `not_readable`: the files that this user may not read.
    """
    found: Dict[str, Any] = {"proxies": [], "visibility": [], "not_readable": []}
    sources = [(SESSION, {name: shell_text.Value(value, True) for name, value in environ.items()})]
    for path in _paths(home, files, found["not_readable"]):
        text = _text(path, found["not_readable"])
        if OF_INTEREST.search(text):
            sources.append((path, shell_text.assignments(path, text, environ)))
    for source, values in sources:
        for name in sorted(values):
            if name in VISIBILITY:
                shown = values[name].text[: proxies.VALUE_CHARACTERS]
                found["visibility"].append({"variable": name, "value": shown, "source": source})
            elif name in PROXIES and values[name].text.strip():
                found["proxies"].append(proxies.described(name, values[name], source))
    proxies.ask(found["proxies"], limit_s)
    return found


def _paths(home: str, files: Sequence[str], not_readable: List[str]) -> Iterator[str]:
    for pattern in files:
        if pattern.startswith("~") and not home:
            continue
        path = Path(home + pattern[1:] if pattern.startswith("~") else pattern)
        try:
            names = sorted(entry.name for entry in path.parent.iterdir()) if "*" in path.name else [path.name]
        except PermissionError:
            not_readable.append(str(path.parent))
            continue
        except OSError:
            continue
        yield from (str(path.parent / name) for name in names if "*" not in path.name or fnmatch.fnmatchcase(name, path.name))


def _text(path: str, not_readable: List[str]) -> str:
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe would keep us waiting
            return ""
        with Path(path).open("rb") as stream:
            return stream.read(FILE_BYTES).decode("utf-8", "replace")
    except PermissionError:
        not_readable.append(path)
    except (OSError, ValueError):
        pass
    return ""
