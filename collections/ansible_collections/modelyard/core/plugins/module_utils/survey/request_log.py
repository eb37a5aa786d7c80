"""Reading the result logs of the gateways on this host: oldest file first, line by line, so memory stays small."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any, Deque, Dict, Iterator, List

from ansible_collections.modelyard.core.plugins.module_utils.gateway import place
from ansible_collections.modelyard.core.plugins.module_utils.judge.requests import Tally, wanted

#: Where the gateway of a service writes, below its own folder.
LOG = Path("instance-0") / "logs" / "results.jsonl"
#: A longer line is no line of a gateway.
LINE_BYTES = 1024 * 1024
#: Lines that are given back when one user or request was asked for.
FOUND = 50


def services(home: str, only: str = "") -> List[str]:
    """Services of the home that have such a log, the named one alone when one is named."""
    found = sorted(path.parents[2].name for path in Path(home, "services").glob(f"*{place.SUFFIX}/{LOG}*"))
    found = [name[: -len(place.SUFFIX)] for name in found]
    return [name for name in dict.fromkeys(found) if only in ("", name)]


def files(home: str, service: str) -> List[Path]:
    """The log and its older parts, oldest first."""
    path = Path(home, "services", place.name(service), LOG)
    numbers = [one.suffix[1:] for one in path.parent.glob(f"{path.name}.*")]
    older = [path.with_name(f"{path.name}.{number}") for number in sorted(int(n) for n in numbers if n.isdigit())]
    return [*reversed(older), path]


def read(home: str, service: str, user: str = "", request: str = "", since: str = "") -> Dict[str, Any]:
    """What the log of a service says of the lines asked for: Tally.result with `damaged`, `problems` and `found`."""
    tally, damaged, problems = Tally(), 0, []
    newest: Deque[Dict[str, Any]] = collections.deque(maxlen=FOUND)
    for path in files(home, service):
        try:
            for line in _lines(path):
                if line is None:
                    damaged += 1
                elif "note" in line or wanted(line, user, request, since):
                    tally.add(line)
                    if "note" not in line and (user or request):
                        newest.append(line)
        except FileNotFoundError:
            continue  # rotated just now, or nothing was asked yet
        except OSError as exc:
            problems.append(f"{path} could not be read: {exc.strerror}")
    return {"service": service, **tally.result(), "damaged": damaged, "problems": problems, "found": list(newest)}


def _lines(path: Path) -> Iterator[Any]:
    """Each line decoded; None for a damaged one. The last line may be being written just now: then it is no line yet."""
    with path.open("rb") as file:
        while True:
            raw = file.readline(LINE_BYTES)
            if not raw:
                return
            if not raw.endswith(b"\n"):
                if len(raw) < LINE_BYTES:
                    return
                _skip(file)
                yield None
                continue
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                line = None
            yield line if isinstance(line, dict) else None


def _skip(file: Any) -> None:
    """The rest of a line that is too long."""
    while True:
        raw = file.readline(LINE_BYTES)
        if not raw or raw.endswith(b"\n"):
            return
