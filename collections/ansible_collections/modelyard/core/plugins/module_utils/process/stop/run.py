"""Stop exactly one service, or some of its instances, gently first, and say what was done.

Gateway, drain, supervisor, signals in the order of phases.py, then look: processes, ports, cards, memory, shared memory. A pid
is signalled only together with its start time. Strangers and suspects are left alone. What cannot be solved goes to an admin.
"""

from __future__ import annotations

import signal
import time
from typing import Any, Collection, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import (
    after,
    answer,
    before,
    cards,
    handover,
    look,
    phases,
    plan,
    segments,
    signals,
)
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.account import Account, Say

Result = Dict[str, Any]
POLL_S = 0.2
#: After so many looks nothing is in a hurry but an end, which is told at once; each look takes the engine a little of its time.
QUICK_LOOKS, SLOW_POLL_S = 10, 0.5
#: The last look waits so long for parents to read how their children ended. Process 1 does so at once, or never (in containers).
REAP_S = 1.0
INIT_REAP_S = 0.2
#: How long one look at the cards may take when there is nothing to wait for.
LOOK_S = 5.0


class Stop(Account):
    """The steps of one stop."""

    @property
    def limit_s(self) -> float:
        """How long the signals can take at most."""
        limits = self.settings.limits
        ask = max(limits.grace_s, limits.drain_s + phases.DRAIN_MARGIN_S)
        ask += self.settings.unit_more_s
        return ask + 2 * limits.term_s + limits.kill_s + phases.KEEPER_S + phases.KEEPER_KILLED_S + 3 * phases.SETTLE_S

    def run(self) -> Result:
        """All of it; the result as the module guarded_stop returns it."""
        # Another stop may have been waited for, and something may have been started since.
        self.watch = look.Watch(self.home, self.service, self.indexes, self.runtimes_dir)
        self.watch.look()
        self.found = [self.watch.describe(found) for found in self.watch.living() + self.watch.zombies()]
        if self.settings.release_supervisor:
            self._before()
        self._signals()
        self._reaped()
        if self.settings.only_signals:
            handover.leave(self)
        else:
            self._cards()
            self._after()
        return answer.of(self)

    def _before(self) -> None:
        serving = self.serving()
        doors.leave(self.home, self.service, list(serving), self.settings.drain_s, self.say)
        before.drain(self.service, serving, self.settings, self.say)
        handover.forget(self)
        limit_s = self.limit_s + self.settings.memory_s
        done, problems = before.release(self.home, self.service, self.watch.states, limit_s, self.say)
        self.did += done
        self.problems += problems
        handover.take_over(self)

    def _signals(self) -> None:
        groups = self.watch.look()
        courses: plan.Courses = {key: phases.Course() for key in groups}
        turn = 0
        while True:
            courses, steps = plan.advance_all(courses, self._allowed(groups), self.seconds, self.settings.limits)
            for step in steps:
                self._send(step)
            if all(course.phase == phases.DONE for course in courses.values()):
                break
            turn += 1
            if turn % 5 == 0:
                self.watch.remember_segments()
            pids = [m.pid for members in groups.values() for m in members]
            signals.wait_for_an_end(pids, POLL_S if turn < QUICK_LOOKS else SLOW_POLL_S)
            groups = self.watch.look()

    def _allowed(self, groups: Mapping[look.Key, List[phases.Member]]) -> Dict[look.Key, List[phases.Member]]:
        """Without those that this user may not signal: there is nothing to wait for."""
        denied = self.denied
        return {k: [m for m in members if identity.Recorded(m.pid, m.start) not in denied] for k, members in groups.items()}

    def _send(self, step: phases.Step) -> None:
        how = signals.send(step.pid, step.start, getattr(signal, step.signal))
        if how == signals.DENIED:
            self.denied[identity.Recorded(step.pid, step.start)] = step.comm
            self.say(f"{step.signal} to {step.pid} ({step.comm}) was refused by the kernel: no right")
        if how == signals.SENT:
            self.say(f"{step.signal} to {step.pid} ({step.comm}): {step.why}")
            self.signalled.append({"pid": step.pid, "start": step.start, "signal": step.signal})

    def _reaped(self) -> None:
        """Give parents a moment to read how their children ended."""
        began = time.monotonic()
        self.watch.look()
        while True:
            parents = {zombie.process.ppid for zombie in self.watch.zombies()}
            if time.monotonic() - began >= (INIT_REAP_S if parents <= {1} else REAP_S) or not parents:
                return
            time.sleep(POLL_S / 4)
            self.watch.look()

    def _cards(self) -> None:
        if self.unplaced:
            self.say(self.unplaced)
        if not self.place.watched:
            return
        wait_s = 0.0 if self.watch.living() else self.settings.memory_s
        self.verdicts = cards.watch(self.place, wait_s, self._mine, self.say, LOOK_S)
        table = self.watch.table
        on_them = set(cards.holders(self.place, table)) | {pid for v in self.verdicts for pid in v["others"]}
        self.others = cards.describe({pid for pid in on_them if not self.watch.is_mine(pid)}, table, self.place)
        for verdict in self.verdicts:
            self.say(f"memory of {verdict['card']}: {verdict['verdict']}: {verdict['what']}")
        for other in self.others:
            self.say(answer.of_other(other, self.service))

    def _mine(self, table: Dict[int, proc.Process]) -> Collection[int]:
        self.watch.look()
        return {known.pid for known in self.watch.ours if known.pid in table}

    def _after(self) -> None:
        named = self.watch.segments | segments.recorded(self.home, self.service, self.indexes)
        self.removed, untold = segments.remove_unheld(named, self.watch.uid)
        if untold:
            self.say(untold)
        if self.removed:
            self.say(f"removed {len(self.removed)} shared-memory segment(s): {', '.join(self.removed)}")
        if not after.forget_acceptance(self.home, self.service, self.indexes):
            self.say("accepted.json could not be changed; it is bound to processes that are gone")


def stop_service(
    home: str,
    service: str,
    indexes: Optional[Collection[int]] = None,
    options: Optional[Mapping[str, Any]] = None,
    say: Optional[Say] = None,
) -> Result:
    """Stop a service, or these instances of it; the result as the module guarded_stop returns it. Raises nothing.

    `options`, all of them optional: grace_s, term_s, kill_s, memory_s, runtimes_dir, release_supervisor (False when the
    supervisor itself calls), only_signals (True when somebody else looks at the cards and tells an admin). What is not given is
    read from service.json. `say` gets each step's words as it happens.
    """
    foreign = look.no_right(home, service)
    if foreign:
        return answer.refusal(service, foreign)
    stop: Optional[Stop] = None
    try:
        stop = Stop(home, service, indexes, options, say)
        # A stop that was called by the supervisor is part of the one that holds the folders.
        mine = stop.watch.indexes if stop.settings.release_supervisor else []
        if not mine and handover.is_ordered(home, service, stop.watch.indexes):
            stop.settings = stop.settings._replace(only_signals=True)
        with before.alone(home, service, mine, stop.limit_s + stop.settings.drain_s + stop.settings.memory_s, stop.say):
            return stop.run()
    except Exception as exc:  # no descriptors, no memory left, a file that people have edited: what was done so far is said
        why = str(exc) if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"
        done = answer.refusal(service, f"the stop was broken off: {why}. It can simply be run again.")
        if stop is None:
            return done
        words = [said for _, said in stop.actions]
        more = {"changed": bool(stop.signalled or stop.did), "found": stop.found, "actions": words}
        return {**done, **more, "seconds": round(stop.seconds, 2)}
