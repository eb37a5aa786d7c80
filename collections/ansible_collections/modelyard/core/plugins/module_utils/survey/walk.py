"""Walking the acceptance ladder on the host: ask, judge, look what happened besides, go on or stop."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_counters, reply_cause
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import between, memory
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import entry as entry_step
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    BUSY,
    FAIL,
    PASS,
    SKIPPED,
    Step,
    Verdict,
    busy,
    failed,
    skipped,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import counters, entry, probe
from ansible_collections.modelyard.core.plugins.module_utils.survey.after_step import Watch
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_watch import NEVER, CardWatch
from ansible_collections.modelyard.core.plugins.module_utils.survey.kernel_watch import KernelWatch

Entry = Dict[str, Any]
ABSENT = failed("it was never started here", "absent", "deploy it first")
NOT_DECLARED = "the service does not declare it (acceptance.also, engine.runner)"


def written(id: str, index: int, verdict: Verdict, seen: Dict[str, Any]) -> Entry:
    """A step as the result has it, and under `evidence` what it rests on."""
    return {
        "id": id,
        "instance": index,
        "passed": verdict.word in (PASS, SKIPPED),
        "verdict": verdict.word,
        "seconds": seen.get("seconds", 0.0),
        "detail": verdict.complaint or verdict.seen,
        "cause": verdict.cause,
        "next": verdict.next,
        "restart": verdict.restart,
        "evidence": seen,
    }


def joined(own: Verdict, stop: Optional[Verdict]) -> Verdict:
    """What a step said, and what was found after it: that decides, and both are told."""
    if stop is None:
        return own
    words = f"{own.complaint}; besides, {stop.complaint}" if own.complaint else f"after this step: {stop.complaint}"
    return stop._replace(complaint=words)


class Walk:
    """One acceptance of one service. `walked` holds the entries of each instance in the order of its steps."""

    def __init__(self, home: str, plan: Dict[str, Any], steps: Sequence[Step], gateway_comes_after: bool) -> None:
        self.home, self.plan, self.steps, self.gateway_comes_after = home, plan, list(steps), gateway_comes_after
        secret = layout.service_dir(home, plan["name"]) / "api_key"
        self.key = secret.read_text(encoding="utf-8").strip() if secret.exists() else ""
        self.indexes = [int(instance["index"]) for instance in plan["instances"]]
        self.walked: Dict[int, List[Entry]] = {index: [] for index in self.indexes}
        self.watches: Dict[int, Watch] = {}
        self.cards = CardWatch(home, plan["name"])
        self.kernel = KernelWatch(self.cards.where.sysroot, self.cards.where.watched)

    def run(self) -> List[Entry]:
        """All instances at the same time, then the gateway; entries in the order of the ladder, then of the instances."""
        threads = [threading.Thread(target=self._guarded, args=(instance,)) for instance in self.plan["instances"]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if any(step.id == entry_step.STEP.id for step in self.steps):
            self._through_gateway()
        order = [step.id for step in self.steps]
        every = [one for entries in self.walked.values() for one in entries]
        return sorted(every, key=lambda one: (order.index(one["id"]), one["instance"]))

    def _guarded(self, instance: Dict[str, Any]) -> None:
        index = int(instance["index"])
        own = [step for step in self.steps if step.id != entry_step.STEP.id]
        try:
            self._instance(instance, own)
        except Exception as exc:  # whatever went wrong, it is no pass
            done = len(self.walked[index])
            step = own[min(done, len(own) - 1)] if own else entry_step.STEP
            self.walked[index].append(_unjudged(step.id, index, exc))

    def _instance(self, instance: Dict[str, Any], steps: Sequence[Step]) -> None:
        """Up to and with the first step that does not pass."""
        index = int(instance["index"])
        state = layout.state(layout.instance_dir(self.home, self.plan["name"], index))
        if state is None:
            first = (steps or [entry_step.STEP])[0]
            self.walked[index].append(written(first.id, index, ABSENT, {}))
            return
        pids = probe.processes(self.home, self.plan["name"], state)["pids"]
        watch = self.watches[index] = Watch(state, index, pids, self.cards, self.kernel)
        had_room = False
        for step in steps:
            verdict, seen = (skipped(NOT_DECLARED), {}) if not step.wanted(self.plan) else (None, {})
            if verdict is None and step.loads and not had_room:
                verdict, seen = self._room(state)
                had_room = verdict is None
            if verdict is None:
                seen = self._seen(step, instance, state, watch)
                verdict = step.judge(self.plan, instance, seen)
            if not self._add(step.id, index, verdict, seen):
                return

    def _add(self, id: str, index: int, verdict: Verdict, seen: Dict[str, Any], since: float = NEVER) -> bool:
        """Write a step down, with what was found after it; does the ladder go on?

        After the last step nobody looks again, so what was seen before its end (`since`, else now) does not serve once more.
        """
        if id == self.steps[-1].id and since == NEVER:
            since = time.monotonic()
        seen["after"] = self.watches[index].look(since)
        verdict = joined(verdict, between.stop(seen["after"]))
        self.walked[index].append(written(id, index, verdict, seen))
        return verdict.word not in (FAIL, BUSY)

    def _seen(self, step: Step, instance: Dict[str, Any], state: Dict[str, Any], watch: Watch) -> Dict[str, Any]:
        wanted = step.ask(self.plan, instance)
        if wanted["kind"] == "memory":
            began = time.monotonic()
            seen = self.cards.look(watch.index, watch.pids)
            return {**seen, "share": watch.share, "seconds": round(time.monotonic() - began, 3)}
        return probe.ask(self.home, self.plan, state, wanted, self.key)

    def _room(self, state: Dict[str, Any]) -> Any:
        """(why tokens are not asked for, what was seen): nobody is made to wait for an acceptance."""
        slots = number(self.plan["engine"].get("max_num_seqs"))
        limit_s = float(self.plan["acceptance"]["busy_wait_s"])
        began = time.monotonic()
        found = counters.wait_for_room(probe.address(state), probe.names(self.plan), slots, limit_s)
        if not found:
            return None, {}
        seen = {"counters": found, "seconds": round(time.monotonic() - began, 3)}
        held = engine_counters.state(found)
        why = reply_cause.TIMEOUTS[held]
        later = found["later"]
        at_work = f"{later.get('running', 0):.0f} running, {later.get('waiting', 0):.0f} waiting"
        if held == engine_counters.HUNG:
            return failed(f"{why.what} ({at_work}, {seen['seconds']:.0f} s long)", why.id, why.do, why.restart), seen
        what = f"no room for a request of ours within {seen['seconds']:.0f} s ({at_work}); {why.what}"
        return busy(what, why.id, why.do), seen

    def _through_gateway(self) -> None:
        """The step `gateway`, for those that have passed what comes before it."""
        step = entry_step.STEP
        indexes = [i for i in self.indexes if i in self.watches and all(one["passed"] for one in self.walked[i])]
        try:
            if not step.wanted(self.plan):
                ended = time.monotonic()
                for index in indexes:
                    self._add(step.id, index, skipped(NOT_DECLARED), {}, ended)
                return
            verdicts = self._pairs(indexes)
            # A single look at a busy machine proves nothing about times.
            again = [index for index, (verdict, _) in verdicts.items() if verdict.cause in entry_step.OF_TIMES]
            found = {**verdicts, **self._pairs(again)}
            ended = time.monotonic()
            for index, (verdict, seen) in found.items():
                self._add(step.id, index, verdict, seen, ended)
        except Exception as exc:
            for index in indexes:
                if not any(one["id"] == step.id for one in self.walked[index]):
                    self.walked[index].append(_unjudged(step.id, index, exc))

    def _pairs(self, indexes: Sequence[int]) -> Dict[int, Any]:
        if not indexes:
            return {}
        seen = entry.look(self.plan, indexes, self.key, probe.names(self.plan), self.gateway_comes_after)
        instances = {int(instance["index"]): instance for instance in self.plan["instances"]}
        return {index: (entry_step.gateway(self.plan, instances[index], one), one) for index, one in seen.items()}


def _unjudged(id: str, index: int, exc: Exception) -> Entry:
    what = f"the step could not be judged: {type(exc).__name__}: {str(exc)[:200]}"
    return written(id, index, failed(what, "defect", "run it again; if it stays, report the text as a defect"), {})


def rows(walk: Walk) -> List[memory.Row]:
    """The last look at the cards of all instances, for the evidence."""
    return [row for watch in walk.watches.values() for row in walk.cards.look(watch.index, watch.pids)["cards"]]
