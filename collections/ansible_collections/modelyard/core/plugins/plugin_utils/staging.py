"""Staging a model from the control node: asking a host (or this machine) again and again until all is there, and saying how far.

side.ask(phase, **parameters)     one call of module_utils/process/staging/serve.py, wherever the model's folder is
offer(side)                       what its source has
bring(side, offer, say)           what is missing is fetched there
bring(..., put)                   its files are brought there from a folder of this machine, piece by piece
check(side, say)                  all hashes
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import model_files
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import size
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import fetch, place, serve, web

#: So often is a file asked for that does not come on in between.
ATTEMPTS = 6
#: Of what the control node brings, so much a call: what an interruption costs, and what a host needs in its temporary folder.
PIECE = 256 * 2**20
PAUSE_S = 2.0
SHOW_S = 5.0
FEW = 5

Say = Callable[[str], None]
Entry = dict[str, Any]


class Refused(Exception):
    """The model cannot be staged; the text says why and what to do."""


class Side(NamedTuple):
    """Where a model's folder is. `call(phase, parameters)` raises serve.Failed."""

    call: Callable[[str, dict[str, Any]], dict[str, Any]]
    path: str
    source: dict[str, Any]
    token: str
    holder: dict[str, Any]
    dead: Callable[[dict[str, Any]], bool]
    pause: Callable[[float], None] = time.sleep

    def ask(self, phase: str, **more: Any) -> dict[str, Any]:
        """One call. A run that is known to have ended is no obstacle."""
        base = {"entries": [], "told": {}, "names": [], "piece": {}, "dead_run": "", "budget_s": serve.BUDGET_S}
        wanted = {**base, "path": self.path, "source": self.source, "token": self.token, "holder": self.holder, **more}
        for attempt in range(ATTEMPTS):
            try:
                return self.call(phase, wanted)
            except serve.Failed as exc:
                if exc.holder and self.dead(exc.holder) and not wanted["dead_run"]:
                    wanted["dead_run"] = exc.holder["run"]
                elif exc.passing and attempt + 1 < ATTEMPTS:
                    self.pause(exc.pause_s or PAUSE_S * 2**attempt)
                else:
                    raise
        raise Refused(f"{self.path}: no answer")


class Told(NamedTuple):
    """What came of it."""

    files: int
    fetched: int
    notes: list[str]


def offer(side: Side) -> dict[str, Any]:
    """What the source has, refused where that can be no model; nothing was fetched yet."""
    try:
        found = side.ask("offer")
    except serve.Failed as exc:
        raise Refused(_with_token(str(exc), exc.status, side)) from exc
    if found["unsafe"]:
        names = ", ".join(map(repr, found["unsafe"][:5]))
        raise Refused(f"the source has names that lead out of the model's folder ({names}). Do not use it: tell its owner")
    return found


def bring(side: Side, found: dict[str, Any], say: Say, put: Callable[[Path], str] | None = None) -> Told:
    """Fetch what is missing; or bring it from this machine with `put`, which takes a file to the host and says where it lies."""
    lost = {name: words for name, words in found["failed"].items() if _in(name, found["needed"])}
    entries = [e for e in [*found["needed"], *found["extra"]] if e["name"] not in found["failed"]]
    seen = side.ask("look", entries=entries)
    stays = {name: size for name, size in seen["sizes"].items() if size}
    _refuse_gaps(lost, entries, stays)
    if seen["short"]:
        need, free, short = (seen[key] / 2**20 for key in ("left", "free", "short"))
        raise Refused(
            f"{need:.0f} MiB are to come to {side.path}, {free:.0f} MiB are free: {short:.0f} MiB of room are missing (some is "
            "kept free). Free it there, or name another folder; nothing was fetched"
        )
    told = _told(side, found)
    progress = _Progress(side.path, entries, say, seen["left"])
    notes = [f"{name} could not be had: {words}" for name, words in found["failed"].items() if name not in lost]
    tries: dict[str, int] = {}
    piece: dict[str, Any] = {}
    while True:
        said = side.ask("step", entries=entries, told=told, piece=piece)
        piece = {}
        notes += [f"what was there in its place is kept as {path}" for path in said["aside"]]
        lost.update({name: words for name, words in said["failed"].items() if _in(name, found["needed"])})
        notes += [f"{name} could not be had: {words}" for name, words in said["failed"].items() if name not in lost]
        entries = [entry for entry in entries if entry["name"] not in said["failed"]]
        progress.show(said, entries)
        if len(said["done"]) == len(entries):
            break
        if said["trouble"]:
            _wait(said["trouble"], tries, progress, side)
        elif put:
            piece = _piece(said, entries, put)
    gone = {name: words for name, words in lost.items() if not stays.get(name)}
    if gone:
        raise Refused(_with_token(_without(gone, found), _status(" ".join(gone.values())), side))
    notes += [f"{name} stays as it is, unproven: {words}" for name, words in lost.items()]
    side.ask("end")
    return Told(len(entries), progress.fetched, notes)


def _without(gone: dict[str, str], found: dict[str, Any]) -> str:
    """Which files did not come. A gated model lists its files and gives none of them."""
    shown = [f"{name}: {text}" for name, text in sorted(gone.items())]
    if len(gone) == len(found["needed"]):
        return f"the source lists its files and gives none of the {len(gone)} that are needed: {shown[0]}"
    more = f"; and {len(shown) - FEW} more" if len(shown) > FEW else ""
    return f"all but this is there now: {'; '.join(shown[:FEW])}{more}"


def _in(name: str, entries: list[Entry]) -> bool:
    return any(entry["name"] == name for entry in entries)


def _refuse_gaps(lost: dict[str, str], entries: list[Entry], there: dict[str, int]) -> None:
    """What the source does not give and the folder does not have, by name."""
    gone = [name for name in lost if not there.get(name)]
    lacking = [name for name in model_files.lacking(entries, there) if name not in gone]
    if not gone and not lacking:
        return
    words = [f"{name} ({lost[name]})" for name in gone]
    words += [f"{name} (the source has no such file)" for name in lacking]
    raise Refused(
        f"a start would lack {'; '.join(words)}. Put just these into the folder, or name a source that gives them: what is there "
        "is not fetched again"
    )


def _told(side: Side, found: dict[str, Any]) -> dict[str, Any]:
    """What the manifest says about the source."""
    from_ = side.source
    kept = {key: from_[key] for key in ("from", "repo", "subfolder")}
    at = web.shown(from_["at"]) if "://" in from_["at"] else from_["at"]
    return {**kept, "at": at, "asked": from_["revision"], "revision": found["revision"]}


def _wait(trouble: dict[str, Any], tries: dict[str, int], progress: _Progress, side: Side) -> None:
    """Bounded: a file that has not come on since the last time was asked for in vain."""
    name = trouble["name"]
    wrong = trouble["status"] == web.WRONG
    tries[name] = tries.get(name, 0) + 1 if wrong or not progress.moved else 1
    most = 2 if wrong else ATTEMPTS
    if tries[name] >= most:
        do = "the source is damaged, or something on the way changes what it sends" if wrong else "what is there stays: run again"
        raise Refused(f"{trouble['words']} ({tries[name]} times); {do}")
    pause = trouble["pause_s"] or PAUSE_S * 2 ** tries[name]
    progress.say(f"{trouble['words']}; going on in {pause:.0f} s")
    side.pause(pause)


def _piece(said: dict[str, Any], entries: list[Entry], put: Callable[[Path], str]) -> dict[str, Any]:
    """The next bytes of the file that the host waits for."""
    entry = next(entry for entry in entries if entry["name"] == said["now"])
    with open(entry["url"], "rb") as stream, tempfile.NamedTemporaryFile(prefix="modelyard-") as kept:  # noqa: PTH123
        stream.seek(said["at"])
        left = PIECE
        while left and (block := stream.read(min(left, fetch.BLOCK))):
            kept.write(block)
            left -= len(block)
        kept.flush()
        sha256 = place.hashes(Path(kept.name))[0]
        return {"name": entry["name"], "offset": said["at"], "file": put(Path(kept.name)), "sha256": sha256}


def with_hashes(found: dict[str, Any]) -> dict[str, Any]:
    """Entries of a folder of this machine, each with its hash: it is what proves that they have come over whole."""
    for entry in [*found["needed"], *found["extra"]]:
        entry["sha256"] = entry["sha256"] or place.hashes(Path(entry["url"]))[0]
    return found


def check(side: Side, say: Say) -> tuple[int, dict[str, str]]:
    """(files checked, what is wrong with them)."""
    names = list(side.ask("verify")["known"])
    left, damaged = names, {}
    began = time.monotonic()
    while left:
        said = side.ask("verify", names=left)
        damaged.update(said["damaged"])
        left = left[len(said["checked"]) :]
        words = f"{len(names) - len(left)} of {len(names)} files checked"
        say(f"  [{time.monotonic() - began:4.0f} s] {Path(side.path).name}: {words}")
    return len(names), damaged


def _with_token(words: str, status: int, side: Side) -> str:
    if status not in (401, 403):
        return words
    if side.token:
        return f"{words}. A token was sent: see that it is valid, and that its owner has accepted the model's terms on the hub"
    return f"{words}. A gated model wants a token: model_tokens, for example from the environment or a vault"


def _status(words: str) -> int:
    return next((code for code in (401, 403) if f"HTTP {code}" in words), 0)


class _Progress:
    """How far it is, for people."""

    def __init__(self, path: str, entries: list[Entry], say: Say, left: int) -> None:
        self.name, self._say = Path(path).name, say
        self.began = time.monotonic()
        self.first = self.last = sum(entry["size"] or 0 for entry in entries) - left
        self.moved, self.fetched = False, 0
        self.shown = -SHOW_S

    def say(self, words: str) -> None:
        """A line with the time before it."""
        self._say(f"  [{time.monotonic() - self.began:4.0f} s] {self.name}: {words}")

    def show(self, said: dict[str, Any], entries: list[Entry]) -> None:
        """A line every few seconds, and one at the end."""
        self.moved = said["bytes"] > self.last
        self.last = max(self.last, said["bytes"])
        self.fetched = max(0, said["bytes"] - self.first)
        passed = time.monotonic() - self.began
        over = len(said["done"]) == len(entries)
        if not over and passed - self.shown < SHOW_S:
            return
        self.shown = passed
        whole = sum(entry["size"] or 0 for entry in entries)
        words = f"{len(said['done'])} of {len(entries)} files, {size(said['bytes'])} of {size(whole)}"
        rate = self.fetched / passed if passed > 1 and self.fetched * 1000 > whole else 0.0  # else it says nothing yet
        if rate and not over:
            left = max(0, whole - said["bytes"]) / rate
            words += f", {size(rate)}/s, about {_span(left)} left ({said['now']})"
        self.say(words)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
