"""What happened to requests, from the lines of result logs: groups of failures, and failures beside successes. Pure, O(1) a line.

Nothing is concluded beyond what the counts hold. Lines of other gateways (HAProxy, nginx) may lack keys; what is missing is not
counted where it is needed.
"""

from __future__ import annotations

import collections
import statistics
from typing import Any, Counter, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import reply_cause

EXAMPLES = 3
#: By what failed and successful requests are compared.
ASPECTS = ("backend", "model", "user", "key", "stream", "thinking", "hour")
VALUES_SHOWN = 5
#: Different values of an aspect that are counted one by one (users can be many).
VALUES_KEPT = 5000
OTHERS = "(others)"


def status(line: Mapping[str, Any]) -> Optional[int]:
    """The status of the answer; None for none. Some gateways write it as text."""
    found = line.get("status")
    try:
        return int(found) if found is not None else None
    except (TypeError, ValueError):
        return None


def cause(line: Mapping[str, Any]) -> Optional[reply_cause.Cause]:
    """Why the request of this line failed; None when it did not."""
    body = line.get("error")
    said = body if isinstance(body, str) else ""
    found = reply_cause.cause(status(line), said, line.get("truncated") is True, line.get("client_gone") is True)
    # vLLM ends a stream well that it does not work off because it is stopped.
    aborted = found is None and "abort" in str(line.get("finish_reason") or "").split(",")
    return reply_cause.ABORTED if aborted else found


def wanted(line: Mapping[str, Any], user: str, request: str, since: str) -> bool:
    """Is the line one that was asked for? Empty means any. `since`: as the lines write the time."""
    if user and line.get("user") != user:
        return False
    if request and line.get("id") != request:
        return False
    return not since or str(line.get("time", "")) >= since


class Tally:
    """Takes lines one by one; bounded memory whatever the log holds."""

    def __init__(self) -> None:
        self.lines = self.failed = 0
        self.lost: List[str] = []
        self._first = self._last = ""
        self._groups: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
        self._aspects: Dict[str, Tuple[Counter[str], Counter[str]]] = {
            name: (collections.Counter(), collections.Counter()) for name in ASPECTS
        }
        self._tokens: Tuple[Counter[int], Counter[int]] = (collections.Counter(), collections.Counter())

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one line; a note of the log about lost lines is kept as such."""
        if "note" in line:
            self.lost = [*self.lost, f"{line.get('time', '')} {line['note']}"][-20:]
            return
        self.lines += 1
        at, why = str(line.get("time") or ""), cause(line)
        if at:
            self._first, self._last = min(self._first or at, at), max(self._last, at)
        # Who goes away himself says nothing about what the others got.
        if why is not reply_cause.CLIENT_GONE:
            self._compare(line, at, why is not None)
        if why is not None:
            self.failed += 1
            self._group(line, at, why)

    def _compare(self, line: Mapping[str, Any], at: str, failed: bool) -> None:
        for name, counts in self._aspects.items():
            value = f"{at[11:13]} h" if name == "hour" and at else line.get(name)
            if value is not None:
                shown = value if isinstance(value, str) else str(value).lower()
                known = shown in counts[0] or shown in counts[1] or len(counts[0]) + len(counts[1]) < VALUES_KEPT
                counts[failed][shown if known else OTHERS] += 1
        tokens = line.get("prompt_tokens")
        if isinstance(tokens, int):
            self._tokens[failed][tokens] += 1

    def _group(self, line: Mapping[str, Any], at: str, why: reply_cause.Cause) -> None:
        key = (status(line), why.id)
        group = self._groups.setdefault(
            key, {"status": key[0], "cause": why.id, "count": 0, "first": at, "last": at, "backends": collections.Counter()}
        )
        group["count"] += 1
        group["first"], group["last"] = min(group["first"], at), max(group["last"], at)
        group["backends"][str(line.get("backend") or "none")] += 1
        group.setdefault("examples", [])
        if len(group["examples"]) < EXAMPLES:
            group["examples"].append({"id": line.get("id"), "user": line.get("user"), "what": why.what})
        group.update(do=why.do, fault=why.fault, restart=why.restart)

    def result(self) -> Dict[str, Any]:
        """Plain data: counts, `groups` (most frequent first), `compared` as words, `lost` as the log's own notes."""
        groups = sorted(self._groups.values(), key=lambda group: -group["count"])
        return {
            **{"lines": self.lines, "failed": self.failed, "first": self._first, "last": self._last, "lost": self.lost},
            "groups": [{**group, "backends": dict(group["backends"].most_common())} for group in groups],
            "compared": self._compared(),
        }

    def _compared(self) -> List[str]:
        words = [line for name in ASPECTS for line in _aspect(name, *self._aspects[name])]
        good, bad = (list(counts.elements()) for counts in self._tokens)
        if good and bad:
            known = f"failed {statistics.median(bad):g} (of {len(bad)}), successful {statistics.median(good):g} (of {len(good)})"
            words.append(f"median of the prompt tokens: {known}")
        return words


def _aspect(name: str, good: Counter[str], bad: Counter[str]) -> List[str]:
    """Failed of all by the values of an aspect; nothing when there is nothing to compare."""
    if not bad or len(set(good) | set(bad)) < 2:
        return []
    failed = sum(bad.values())
    if len(bad) == 1:
        (value,) = bad
        others = sum(good.values()) - good[value]
        return [
            f"all {failed} failure(s) are of {name} {value}: {failed} of its {failed + good[value]} failed, "
            f"and 0 of {others} of the others"
        ]
    shown = [f"{value} {count} of {count + good[value]}" for value, count in bad.most_common(VALUES_SHOWN)]
    more = f", {len(bad) - VALUES_SHOWN} more with failures" if len(bad) > VALUES_SHOWN else ""
    clean = sum(count for value, count in good.items() if value not in bad)
    return [f"failed by {name}: {', '.join(shown)}{more}" + (f"; the others 0 of {clean}" if clean else "")]
