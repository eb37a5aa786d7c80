"""Carrying out a load test: level by level, under limits, for as long as somebody watches. Restarts nothing.

It goes on when the task that began it has ended. It ends by itself when its work is done, when it is told to (SIGTERM, or the
file `stop`), and when nobody has looked for WATCHED_S, so that a lost control node leaves no load behind.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ansible_collections.modelyard.core.plugins.module_utils.judge.load import figures, record, server, standstill
from ansible_collections.modelyard.core.plugins.module_utils.load import bench, generators, place
from ansible_collections.modelyard.core.plugins.module_utils.load.look import Running
from ansible_collections.modelyard.core.plugins.module_utils.load.sampler import Sampler
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc

WATCHED_S = 60.0
TICK_S, TELL_S = 0.1, 0.5
#: After this part of failed requests the next level would only fail more.
HOPELESS = 0.5
#: So many times as long as a request may take nothing may move.
STILL = 1.5
Generator = Union[generators.Own, generators.Bench]


class Stopped(Exception):
    """Somebody or something ended the run; the text says who or what."""


class Run:
    """One load test. `plan`: what look.py has found out: {id, running, addresses, entry, words, key, notes,
    measured}."""

    def __init__(self, home: str, request: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> None:
        self.home, self.request, self.plan, self.folder = home, request, plan, folder
        self.running: Sequence[Running] = plan["running"]
        self.levels: List[Dict[str, Any]] = []
        self.troubles: List[str] = []
        self.notes: List[str] = list(plan["notes"])
        self.use_bench = bool(request["bench"])
        self.generator: Optional[Generator] = None
        self.began = time.monotonic()
        self.began_at = time.time()
        self.watched = (0.0, self.began)
        self.told = 0.0
        self.asked_to_end = ""

    def carry_out(self) -> Dict[str, Any]:
        """All levels; the progress that is written last. It holds the record, or `stopped` and why."""
        try:
            for number, level in enumerate(self.request["levels"], 1):
                figures_of_level = self._level(number, level)
                self.levels.append(figures_of_level)
                self.tell({"ended": False, "now": None, "levels": self.levels})
                if self._is_hopeless(figures_of_level):
                    break
        except Stopped as exc:
            return {"ended": True, "stopped": str(exc), "levels": self.levels}
        base = place.folder(self.home, self.request["service"])
        whole = self._record(base)
        try:
            place.keep(base, whole, self.request["keep"])
            kept = ""
        except OSError as exc:
            kept = f"the record could not be written to {base}: {exc}"
        return {
            "ended": True,
            "record": whole,
            "path": str(base / f"{whole['id']}.json"),
            "not_kept": kept,
            "levels": self.levels,
        }

    def _record(self, base: Path) -> Dict[str, Any]:
        own = {"name": generators.Own.name, "version": self.request.get("version", "")}
        used = {"name": bench.NAME, "version": self.request["release"]} if self.use_bench else own
        measured = {
            "id": place.stamp(base),
            "at": round(self.began_at, 3),
            "service": self.request["service"],
            "tool": used,
            "seed": self.request["shape"]["seed"],
            "entry": self.plan["entry"],
            "shape": self.request["shape"],
            **self.plan["measured"],
            "levels": self.levels,
            "limits": self.request["limits"],
            "notes": self.notes,
        }
        limit = int(self.request["gateway"].get("per_backend_limit", 0)) if self.request["gateway"] else 0
        return record.complete(measured, self.troubles, place.records(base), limit)

    # -- one level ---------------------------------------------------------------------------------------------------

    def _level(self, number: int, level: Mapping[str, Any]) -> Dict[str, Any]:
        found, sampler = self._measured(number, level)
        if not found["completed"] and self.use_bench and number == 1 and self.request["tool"] == "auto" and not self.troubles:
            # A tool that is there and does not run. Should it be the service's fault, our generator will say so.
            self.notes.append(
                f"{found.pop('why', '') or 'no request succeeded with ' + bench.NAME}; the project's own generator was used"
            )
            self.use_bench = False
            found, sampler = self._measured(number, level)
        found.pop("why", None)
        self._add_server(found, sampler)
        self.troubles += [text for text in self._deaths() if text not in self.troubles]
        return found

    def _measured(self, number: int, level: Mapping[str, Any]) -> Tuple[Dict[str, Any], Sampler]:
        """(figures, samples) of one try. A level whose generator left nothing has `why`."""
        sampler = Sampler(self.request, self.running)
        began = time.monotonic()
        sampler.look(began, None)
        self.generator = generator = self._start(level)
        cut = ""
        # Our own requests end at their limit; this is for what has no limit of its own.
        still = standstill.Standstill(self.request["service"], STILL * self.request["request_limit_s"], began)
        limit = began + level["seconds"] + self.request["level_limit_s"]
        try:
            while not generator.ended():
                time.sleep(TICK_S)
                now = time.monotonic()
                self._watch()
                sampler.look(now, generator.pid)
                self._tell(number, level, sampler)
                cut = still.look(now, sampler.samples[-1], generator.done() or (0, 0))
                if not cut and now > limit:
                    cut = f"the level did not end within {limit - began:.0f} s (load_test_level_limit_s)"
                if cut:
                    self.troubles.append(f"at {level['kind']} {level['value']:g} {cut}")
                    generator.stop()
                    break
        finally:
            generator.stop()
            self.generator = None
        seconds = time.monotonic() - began
        sampler.last(time.monotonic())
        found = generator.result()
        if not found:
            why = cut or generator.said()
            if not cut:
                self.notes.append(f"at {level['kind']} {level['value']:g}: {why}")
            answered = sum(server.grown(sampler.samples[0], sampler.samples[-1], "finished").values())
            found = {**figures.of_nothing(level, why, min(answered, level["requests"]), seconds), "why": why}
        return found, sampler

    def _start(self, level: Mapping[str, Any]) -> Generator:
        addresses = self.plan["addresses"]
        if self.use_bench:
            return generators.Bench(self.folder, self.request, level, addresses[0], self.plan["key"])
        return generators.own(self.folder, self.request, level, addresses, self.plan["key"], self.plan["words"])

    def _add_server(self, level: Dict[str, Any], sampler: Sampler) -> None:
        """What engines, cards and generator did meanwhile."""
        level["server"] = server.seen(sampler.samples)
        level["cards"] = server.cards(sampler.card_samples)
        level["client_cpu"] = server.client_cpu(sampler.samples)
        if not level["by_backend"]:
            level["by_backend"] = server.grown(sampler.samples[0], sampler.samples[-1], "finished")

    def _deaths(self) -> List[str]:
        """Instances that ended, or were started anew by somebody, since the beginning."""
        said = []
        for one in self.running:
            if not proc.alive(*one.leader):
                name = f"{self.request['service']}/{one.index}"
                said.append(f"{name} ended while it was tested; nothing was restarted (log: {one.log})")
        return said

    def _is_hopeless(self, level: Mapping[str, Any]) -> bool:
        """Is it of no use to go on with more load?"""
        last = len(self.levels) == len(self.request["levels"])
        if last:
            return True
        if self.troubles:
            self.notes.append("the levels after it were left out: what was measured then would not be this service as it was")
        elif figures.error_rate(level) > HOPELESS:
            self.notes.append("the levels after it were left out, because most requests failed already")
        else:
            return False
        return True

    # -- those who watch ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self.asked_to_end or place.is_asked_to_end(self.folder, self.plan["id"]):
            raise Stopped(self.asked_to_end or "it was asked to end")
        now = time.monotonic()
        with contextlib.suppress(OSError):
            seen = (self.folder / place.WATCH).stat().st_mtime
            if seen != self.watched[0]:  # compared, not subtracted: somebody may set the clock
                self.watched = (seen, now)
        if now - self.watched[1] > WATCHED_S:
            raise Stopped(f"nobody has watched for {WATCHED_S:.0f} s: the control node has gone, or its run was ended")

    def _tell(self, number: int, level: Mapping[str, Any], sampler: Sampler) -> None:
        """Write down how far it is."""
        now = time.monotonic()
        if now - self.told < TELL_S or self.generator is None:
            return
        self.told = now
        first, last = sampler.samples[0], sampler.samples[-1]
        done, failed = self.generator.done() or (sum(server.grown(first, last, "finished").values()), 0)
        running, waiting = (server.queue(last, key) for key in ("running", "waiting"))
        rate = done / (now - first["at"]) if now > first["at"] else 0.0
        seen = {"level": number, "of": len(self.request["levels"]), "kind": level["kind"], "value": level["value"]}
        seen.update(done=done, failed=failed, requests=level["requests"], seconds=now - self.began, rate=rate)
        seen.update(running=None if running is None else int(running), waiting=None if waiting is None else int(waiting))
        self.tell({"ended": False, "now": seen, "levels": self.levels})

    def tell(self, progress: Mapping[str, Any]) -> None:
        """A disk that is full must not end a run whose figures are wanted: who watches sees an old state then."""
        with contextlib.suppress(OSError):
            layout.write_json(self.folder / place.PROGRESS, {"pid": os.getpid(), "id": self.plan["id"], **progress})
