"""What the numbers in the deciding lines mean. Pure functions over text."""

from __future__ import annotations

import re
import signal
from typing import Callable, List, Mapping, Sequence

_GIB = r"([\d.]+)"


def _free(text: str) -> List[str]:
    found = re.search(rf"\(\s*{_GIB}\s*/\s*{_GIB}\s*GiB\s*\).*\(\s*[\d.]+\s*,\s*{_GIB}\s*GiB", text, re.IGNORECASE | re.DOTALL)
    if not found:
        return []
    gap = float(found.group(3)) - float(found.group(1))
    if gap >= 1:
        return [f"{gap:.2f} GiB are missing: another process or a leftover holds them"]
    return [
        f"only {gap * 1024:.0f} MiB are missing: a margin (display, a context, rounding), not a leftover; lower the utilization"
    ]


def signal_name(code: int) -> str:
    """`9 (SIGKILL)` of an exit code -n or 128 + n."""
    number = -code if code < 0 else code - 128 if code > 128 else code
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def _killed(text: str) -> List[str]:
    found = re.search(r"(?:code|status|with|signal)\D{0,6}(-\d{1,2}|1[2-5]\d|\d{1,2})\b", text, re.IGNORECASE)
    if not found:
        return []
    name = signal_name(int(found.group(1)))
    hint = ": look for an oom-kill of that minute, or who sent it" if name.startswith("9 ") else ""
    return [f"ended by signal {name}{hint}"]


def _collective(text: str) -> List[str]:
    sequence = re.search(r"SeqNum\s*=\s*(\d+)", text)
    done = re.search(r"last completed NCCL work:\s*(-?\d+)", text)
    if not (sequence or done):
        return []
    first = int(sequence.group(1)) <= 1 if sequence else int(done.group(1)) <= 0  # type: ignore[union-attr]
    if first:
        return ["the very first collective: set-up (P2P, IOMMU or ACS, masks), not load"]
    count = sequence.group(1) if sequence else done.group(1)  # type: ignore[union-attr]
    return [
        f"collective {count}: those before it went well, so a rank was lost or slow; the rank that says nothing is the "
        f"interesting one"
    ]


def _context(text: str) -> List[str]:
    found = re.search(r"got -(\d+)", text)
    return (
        [f"the prompt alone is {found.group(1)} tokens over the limit (what is left for the output is computed)"] if found else []
    )


def _visible(text: str) -> List[str]:
    zero = re.search(r"(?:GPUs|devices|cards|accelerators)\s*\(\s*0\s*\)", text)
    return ["no card at all is visible: a mask that is set but empty, or a driver that does not answer"] if zero else []


def _xid(text: str) -> List[str]:
    pids = set(re.findall(r"pid=(\d+)", text))
    return ["several PIDs on a card point to the card itself"] if len(pids) > 1 else []


_READERS: Mapping[str, Callable[[str], List[str]]] = {
    "startup_free_memory_too_low": _free,
    "worker_killed_signal": _killed,
    "nccl_watchdog_timeout": _collective,
    "request_context_too_long": _context,
    "visible_gpus_fewer_than_world_size": _visible,
    "cuda_illegal_memory_access": _xid,
}


def read(cause: str, lines: Sequence[str]) -> List[str]:
    """Words about the numbers in the deciding lines of a cause; none when there is nothing to say."""
    reader = _READERS.get(cause)
    return reader(" ".join(lines)) if reader else []
