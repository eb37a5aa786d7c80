"""Stop exactly one service, or some of its instances, gently first, and say what was done.

Gateway, drain, supervisor, signals in the order of phases.py, then look: processes, ports, cards, memory, shared memory. A pid
is signalled only together with its start time. Strangers and suspects are left alone. What cannot be solved goes to an admin.
"""

from __future__ import annotations

import signal
import time
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import (
    admin,
    admin_facts,
    after,
    answer,
    before,
    cards,
    look,
    phases,
    plan,
    segments,
    settings,
    signals,
)

Say = Callable[[str], None]
Result = Dict[str, Any]
POLL_S = 0.2
#: After so many looks nothing is in a hurry but an end, which is told at once; each look takes the engine a little of its time.
QUICK_LOOKS, SLOW_POLL_S = 10, 0.5
#: The last look waits so long for parents to read how their children ended. Process 1 does so at once, or never (in containers).
REAP_S = 1.0
INIT_REAP_S = 0.2
#: How long one look at the cards may take when there is nothing to wait for.
LOOK_S = 5.0


class Stop:
    """One stop. `actions` collects what was done, in words, with the seconds since the beginning."""

    def __init__(
        self,
        home: str,
        service: str,
        indexes: Optional[Collection[int]] = None,
        options: Optional[Mapping[str, Any]] = None,
        say: Optional[Say] = None,
    ) -> None:
        self.home = home
        self.service = service
        self.indexes = indexes
        self.began = time.monotonic()
        self.actions: List[Tuple[float, str]] = []
        self.tell = say or (lambda words: None)
        given = dict(options or {})
        self.runtimes_dir = str(given.get("runtimes_dir") or "")
        self.watch = look.Watch(home, service, indexes, self.runtimes_dir)
        self.settings = settings.read(home, service, self.watch.states.values(), given)
        self.place, self.unplaced = cards.usable_place(home, service, indexes)
        self.signalled: List[Dict[str, Any]] = []
        #: What was done beside signals, in words.
        self.did: List[str] = []
        self.denied: Dict[identity.Recorded, str] = {}
        self.problems: List[str] = []
        self.found: List[Dict[str, Any]] = []
        self.verdicts: List[Dict[str, Any]] = []
        self.others: List[Dict[str, Any]] = []

    def say(self, words: str) -> None:
        """Keep what is done, and tell it at once."""
        self.actions.append((round(time.monotonic() - self.began, 1), words))
        self.tell(words)

    @property
    def limit_s(self) -> float:
        """How long the signals can take at most."""
        limits = self.settings.limits
        ask = max(limits.grace_s, limits.drain_s + phases.DRAIN_MARGIN_S)
        ask += self.settings.unit_more_s
        return ask + 2 * limits.term_s + limits.kill_s + phases.KEEPER_S + phases.KEEPER_KILLED_S + 3 * phases.SETTLE_S

    def serving(self) -> Dict[int, int]:
        """Ports of the instances whose API server lives, by index."""
        leaders = {(f.process.pid, f.process.start) for f in self.watch.living()}
        return {
            index: int(state["request"]["port"])
            for index, state in self.watch.states.items()
            if state and (state["leader"]["pid"], state["leader"]["start"]) in leaders
        }

    # -- the steps -----------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """All of it; the result as the module guarded_stop returns it."""
        # Another stop may have been waited for, and something may have been started since.
        self.watch = look.Watch(self.home, self.service, self.indexes, self.runtimes_dir)
        self.watch.look()
        self.found = [self.watch.describe(found) for found in self.watch.living() + self.watch.zombies()]
        if self.settings.release_supervisor:
            serving = self.serving()
            doors.leave(self.home, self.service, list(serving), self.settings.drain_s, self.say)
            before.drain(self.service, serving, self.settings, self.say)
            limit_s = self.limit_s + self.settings.memory_s
            done, problems = before.release(self.home, self.service, self.watch.states, limit_s, self.say)
            self.did += done
            self.problems += problems
        self._signals()
        self._reaped()
        self._cards()
        named = self.watch.segments | segments.recorded(self.home, self.service, self.indexes)
        removed, untold = segments.remove_unheld(named, self.watch.uid)
        if untold:
            self.say(untold)
        if removed:
            self.say(f"removed {len(removed)} shared-memory segment(s): {', '.join(removed)}")
        if not after.forget_acceptance(self.home, self.service, self.indexes):
            self.say("accepted.json could not be changed; it is bound to processes that are gone")
        return self._result(removed)

    def _signals(self) -> None:
        groups = self.watch.look()
        courses: plan.Courses = {key: phases.Course() for key in groups}
        turn = 0
        while True:
            now = time.monotonic() - self.began
            courses, steps = plan.advance_all(courses, self._allowed(groups), now, self.settings.limits)
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
            whose = " of another instance of this service" if other["marker"] == self.service else ""
            files = ", ".join(other["devices"] or [])
            self.say(
                f"left alone{whose}: pid {other['pid']} of user {other['user']} ({other['command'][:120]})"
                + "".join(f", {key} {other[key]}" for key in ("unit", "container") if other[key])
                + (f" has {files} open" if files else " is on these cards")
            )

    def _mine(self, table: Dict[int, proc.Process]) -> Collection[int]:
        self.watch.look()
        return {known.pid for known in self.watch.ours if known.pid in table}

    # -- the answer ----------------------------------------------------------------------------------------------

    def _result(self, removed: List[str]) -> Result:
        left = [self.watch.describe(found) for found in self.watch.living()]
        for zombie in self.watch.zombies():
            self.say(answer.of_zombie(zombie.process))
        ended = len({(s["pid"], s["start"]) for s in self.signalled})
        self.say(
            f"checked: {len(self.found)} process(es) found, {ended} signalled, {len(left)} left; "
            f"{after.ports(self.watch.states)}; {len(removed)} shared-memory segment(s) removed"
        )
        result: Result = {
            "changed": bool(self.signalled or removed or self.did),
            "found": self.found,
            "left": left,
            "suspects": [self.watch.describe(found) for found in self.watch.suspects.values()],
            "cards": self.verdicts,
            "others": self.others,
            "needs_admin": "",
            "failed": False,
            "msg": "",
        }
        self._judge(result)
        result["actions"] = [words for _, words in self.actions]
        result["stopped"] = not result["failed"]
        return result

    def _judge(self, result: Result) -> None:
        why = answer.why(result["left"], self.signalled, self.verdicts)
        doubtful = answer.doubtful(self.watch)
        left = {identity.Recorded(p["pid"], p["start"]) for p in result["left"]}
        denied = {known: comm for known, comm in self.denied.items() if known in left}
        if denied:
            who = ", ".join(f"{known.pid} ({comm})" for known, comm in denied.items())
            answer.fail(result, f"{self.service}: this user may not signal {who}. Run it as the user of the service, or as root.")
        elif why:
            report = self._hand_over(why, result)
            answer.fail(result, f"{self.service} needs an admin: {'; '.join(why)}. {report}")
        elif self.problems:
            answer.fail(result, f"{self.service}: {'; '.join(self.problems)}. All its processes are gone now; look again.")
        elif doubtful:
            answer.fail(result, doubtful)
        elif after.clear_admin(self.home, self.service, self.verdicts):
            result["changed"] = True
            self.say("what an admin had to do is done: needs_admin.json removed")

    def _hand_over(self, why: List[str], result: Result) -> str:
        facts = admin_facts.gather(self.watch, self.place, why, self.verdicts, self.others, self.actions)
        folder, problems = admin.write(self.home, self.service, facts)
        result.update(needs_admin=folder, changed=True)
        result["report"] = admin.text(facts)
        if problems:
            return f"The report could not be written whole ({'; '.join(sorted(set(problems)))}); it is part of this result."
        return f"The report with the choices: {folder}/report.txt. Nothing else was touched."


def stop_service(
    home: str,
    service: str,
    indexes: Optional[Collection[int]] = None,
    options: Optional[Mapping[str, Any]] = None,
    say: Optional[Say] = None,
) -> Result:
    """Stop a service, or these instances of it; the result as the module guarded_stop returns it. Raises nothing.

    `options`, all of them optional: grace_s, term_s, kill_s, memory_s, runtimes_dir, release_supervisor (False when the
    supervisor itself calls). What is not given is read from service.json. `say` gets each step's words as it happens.
    """
    foreign = look.no_right(home, service)
    if foreign:
        return answer.refusal(service, foreign)
    stop: Optional[Stop] = None
    try:
        stop = Stop(home, service, indexes, options, say)
        # A stop that was called by the supervisor is part of the one that holds the folders.
        mine = stop.watch.indexes if stop.settings.release_supervisor else []
        with before.alone(home, service, mine, stop.limit_s + stop.settings.drain_s + stop.settings.memory_s, stop.say):
            return stop.run()
    except Exception as exc:  # no descriptors, no memory left, a file that people have edited: what was done so far is said
        why = str(exc) if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"
        done = answer.refusal(service, f"the stop was broken off: {why}. It can simply be run again.")
        if stop is None:
            return done
        words = [said for _, said in stop.actions]
        return {**done, "changed": bool(stop.signalled or stop.did), "found": stop.found, "actions": words}


def preview(
    home: str, service: str, indexes: Optional[Collection[int]] = None, options: Optional[Mapping[str, Any]] = None
) -> Result:
    """What a stop would do now, in order; nothing is signalled, run or written."""
    foreign = look.no_right(home, service)
    if foreign:
        return answer.refusal(service, foreign)
    stop = Stop(home, service, indexes, options)
    groups = stop.watch.look()
    members = {m.pid for group in groups.values() for m in group}
    actions = _first_steps(stop)
    for after_s, step in plan.schedule(groups, stop.settings.limits):
        when = "" if after_s == 0 else f", if it is still there after {after_s:.0f} s"
        found = stop.watch.ours[identity.Recorded(step.pid, step.start)][1]
        shown = f" of {proc.user_name(found.process.uid)} ({', '.join(sorted(found.signs))})" if after_s == 0 else ""
        actions.append(f"would send {step.signal} to {step.pid} ({step.comm}){shown}: {step.why}{when}")
    if stop.place.watched:
        names = ", ".join(str(device.get("index")) for device in stop.place.devices)
        actions.append(f"would wait up to {stop.settings.memory_s:.0f} s until the memory of card {names} is back")
        table = stop.watch.table
        stop.others = cards.describe(set(cards.holders(stop.place, table)) - members, table, stop.place)
    result = answer.refusal(service, "")
    result.update(failed=False, stopped=False, msg="", changed=bool(members), actions=actions, others=stop.others)
    result["found"] = [stop.watch.describe(found) for found in stop.watch.living() + stop.watch.zombies()]
    result["suspects"] = [stop.watch.describe(found) for found in stop.watch.suspects.values()]
    return result


def _first_steps(stop: Stop) -> List[str]:
    """What comes before the signals, in words."""
    if not stop.settings.release_supervisor or not stop.watch.ours:
        return []
    words = doors.would_leave(stop.home, stop.service, list(stop.serving()), stop.settings.drain_s)
    if stop.settings.drain_command:
        words.append(f"would run the drain command, {stop.settings.drain_s:.0f} s at most: {stop.settings.drain_command}")
    kinds = {str(state["request"].get("supervisor") or "plain") for state in stop.watch.states.values() if state}
    words += [f"would let {kind} start nothing again" for kind in sorted(kinds - {"plain", "screen"})]
    return words
