"""A process's title, set as setproctitle sets it: over the words of the command line, and over the environment behind them."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

PR_SET_NAME = 15
NAME_BYTES = 15
ARG_START, ARG_END, ENV_END = 45, 46, 48  # places in /proc/PID/stat after the name; the environment begins at 47
_kept = []


def set_title(title: str) -> None:
    """With SPT_NOENV=1 the memory of the environment is left alone, as setproctitle does."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    begin, end = int(stat[ARG_START]), int(stat[ARG_END])
    if os.environ.get("SPT_NOENV") != "1":
        # Put anew, each variable has memory of its own: what stands behind the words may go.
        for name, value in os.environ.items():
            os.environ[name] = value
        end = int(stat[ENV_END])
    size = end - begin
    ctypes.memmove(begin, title.encode()[: size - 1].ljust(size, b"\0"), size)
    ctypes.CDLL(None).prctl(PR_SET_NAME, title.encode()[:NAME_BYTES], 0, 0, 0)


def map_library(folder: Path) -> None:
    """Have a file of this environment in memory, as every process of the real one has torch's libraries."""
    with (folder / "torch/lib/libtorch_stand_in.so").open("rb") as stream:
        _kept.append(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
