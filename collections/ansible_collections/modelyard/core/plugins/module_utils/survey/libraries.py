"""Shared libraries of the host that a runtime's wheels load and do not bring. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Dict, List, Sequence

#: Asked in a process of its own, with no variables: an engine has none of those of this login either.
ASK = (
    "import ctypes, sys\n"
    "for name in sys.argv[1:]:\n"
    "    try:\n"
    "        ctypes.CDLL(name)\n"
    "        print(name)\n"
    "    except OSError:\n"
    "        pass\n"
)
LIMIT_S = 20
#: Stands for the places that the loader searches by itself.
SYSTEM = ""


def look(names: Sequence[str], folders: Sequence[str]) -> Dict[str, List[str]]:
    """{name: where it is}: SYSTEM where the loader finds it by itself, and those of the folders that have it."""
    if not names:
        return {}
    by_itself: List[str] = []
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", ASK, *names], capture_output=True, text=True, timeout=LIMIT_S, check=False, env={}
        )
        by_itself = done.stdout.split()
    except (OSError, subprocess.SubprocessError):
        pass
    return {
        name: ([SYSTEM] if name in by_itself else []) + [f for f in folders if os.access(f"{f}/{name}", os.R_OK)]
        for name in names
    }
