"""The stop of one group of processes, phase by phase: what to signal next. Pure functions.

For the processes of one instance (a group), in this order, each step only for what the one before has left:

    ask       SIGINT once to each API server, and wait: its engine may work off requests. SIGTERM when nothing moves, because a
              signal sent while the engine loads was once lost. A server that is left alone waits for clients that do not
              hang up, perhaps for ever: it is given `linger_s`. (A gateway is nothing but such a server, and has requests.)
    cores     SIGTERM to engine cores; their workers end with them
    workers   SIGTERM to what is left
    kill      SIGKILL, one process at a time. What is in the kernel (D, or R in a driver) may stay: the wait is bounded
    keeper    the keeper ends by itself when its last child has; one that hangs on is ended

Every step has an end by the clock, so a stop ends, whatever the processes do.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

ASK, CORES, WORKERS, KILL, KEEPER_PHASE, DONE = "ask", "cores", "workers", "kill", "keeper", "done"
KEEPER, SERVER, CORE, HELPER, WORKER = "keeper", "server", "core", "helper", "worker"

#: An API server whose engine has ended can wait for ever for a client that does not hang up (seen: 41 s and more).
LINGER_S = 5.0
#: A signal is sent again when nothing has moved for so long, beyond the engine's own time for open requests.
REPEAT_S = 20.0
#: Children leave a moment after their parent.
SETTLE_S = 2.0
#: EngineCore without its API server takes 10 to 25 s to end (seen).
TERM_S = 30.0
#: Workers that are left when their core had its time.
WORKERS_S = 10.0
KILL_S = 10.0
KEEPER_S = 5.0
KEEPER_KILLED_S = 2.0
#: Beyond the engine's own time for open requests.
DRAIN_MARGIN_S = 15.0
CORE_NAME = "VLLM::EngineCor"
#: Kernel states of a process that somebody has stopped (SIGSTOP, a debugger): it takes no signal but KILL before it goes on.
STOPPED = "Tt"
_KILL_ORDER = {CORE: 0, WORKER: 1, HELPER: 2, SERVER: 3, KEEPER: 4}


class Limits(NamedTuple):
    """How long each step may take, in seconds. `drain_s`: what the engine itself was allowed for open requests.

    `linger_s`: how long a server that is left alone may go on after it was asked.
    """

    grace_s: float = 45.0
    term_s: float = TERM_S
    kill_s: float = KILL_S
    drain_s: float = 0.0
    linger_s: float = LINGER_S


class Member(NamedTuple):
    """A living process of the group."""

    pid: int
    start: int
    comm: str
    state: str
    role: str


class Step(NamedTuple):
    """One signal to one process."""

    signal: str
    pid: int
    start: int
    comm: str
    why: str


class Sent(NamedTuple):
    """A signal that was sent, or at least tried."""

    signal: str
    pid: int
    start: int
    phase: str


class Course(NamedTuple):
    """How far the stop of a group has come. Times are of one clock, in seconds."""

    phase: str = ASK
    since: float = 0.0
    sent: Tuple[Sent, ...] = ()
    living: int = -1  # living members at the last look
    moved_at: float = 0.0  # when that number last changed, or a signal was repeated
    alone_since: Optional[float] = None  # since when only API servers are left
    gone_since: Optional[float] = None  # since when those are gone that the phase waits for first


def role_of(comm: str, command: str, is_keeper: bool, is_leader: bool) -> str:
    """What a process of an instance is. Titles of vLLM are cut to 15 characters."""
    if is_keeper:
        return KEEPER
    if is_leader:
        return SERVER
    if comm[:15] == CORE_NAME:
        return CORE
    return HELPER if "resource_tracker" in command else WORKER


def advance(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    """The next signals, and the course after them. No signal means: look again in a moment, or, when the phase is DONE, the end.

    `members`: the group's living processes. Strangers are not among them, so no signal can reach one.
    """
    engine = [m for m in members if m.role != KEEPER]
    if len(engine) != course.living:
        course = course._replace(living=len(engine), moved_at=now)
    while True:
        before = course.phase
        course, steps = _PHASES[course.phase](course, members, now, limits)
        if steps or course.phase in (before, DONE):
            done = tuple(Sent(s.signal, s.pid, s.start, course.phase) for s in steps)
            return course._replace(sent=course.sent + done), steps


def _to(course: Course, phase: str, now: float) -> Course:
    return course._replace(phase=phase, since=now, alone_since=None, gone_since=None)


def waited(course: Course, now: float, seconds: float) -> Tuple[Course, bool]:
    """Has it been so long since what comes first was gone? The course remembers since when."""
    if course.gone_since is None:
        course = course._replace(gone_since=now)
    return course, now - _time(course.gone_since, now) >= seconds


def _time(since: Optional[float], now: float) -> float:
    return now if since is None else since


def _was_sent(course: Course, member: Member, signals: Sequence[str], phases: Sequence[str]) -> bool:
    return any((s.pid, s.start) == (member.pid, member.start) and s.signal in signals and s.phase in phases for s in course.sent)


def _signal(members: Sequence[Member], signal: str, why: str) -> List[Step]:
    """The signal to each of them; one that was stopped is let go on, so that it can obey."""
    steps = []
    for m in members:
        steps.append(Step(signal, m.pid, m.start, m.comm, why))
        if m.state in STOPPED and signal != "SIGKILL":
            steps.append(Step("SIGCONT", m.pid, m.start, m.comm, "somebody had stopped it: lets it act on the signal"))
    return steps


def _ask(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    engine = [m for m in members if m.role != KEEPER]
    servers = [m for m in engine if m.role == SERVER]
    fresh = [m for m in servers if not _was_sent(course, m, ("SIGINT",), (ASK,))]
    if not engine or not (servers or course.sent):
        return _to(course, CORES, now), []
    if not servers:
        course, settled = waited(course, now, SETTLE_S)
        return (_to(course, CORES, now) if settled else course), []
    if fresh and not course.sent:
        return course._replace(since=now, moved_at=now), _signal(fresh, "SIGINT", "asked to stop")
    if now - course.since >= max(limits.grace_s, limits.drain_s + DRAIN_MARGIN_S if limits.drain_s else 0.0):
        return _to(course, CORES, now), []
    if fresh:
        return course, _signal(fresh, "SIGINT", "asked to stop")
    if all(m.role in (SERVER, HELPER) for m in engine):
        if course.alone_since is None:
            course = course._replace(alone_since=now)
        if now - _time(course.alone_since, now) >= limits.linger_s:
            return _to(course, CORES, now), []
    else:
        course = course._replace(alone_since=None)
    if now - course.moved_at > REPEAT_S + limits.drain_s:
        why = f"asked again, nothing moved for {now - course.moved_at:.0f} s"
        return course._replace(moved_at=now), _signal(servers, "SIGTERM", why)
    return course, []


def _cores(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    cores = [m for m in members if m.role == CORE]
    fresh = [m for m in cores if not _was_sent(course, m, ("SIGTERM",), (CORES,))]
    if fresh and now - course.since < limits.term_s:
        return course, _signal(fresh, "SIGTERM", "its API server is gone or does not end: the engine core is asked to end")
    if cores and now - course.since < limits.term_s:
        return course, []
    asked = any(s.phase == CORES for s in course.sent)
    if asked and not cores and any(m.role != KEEPER for m in members):
        course, settled = waited(course, now, SETTLE_S)
        if not settled:
            return course, []
    return _to(course, WORKERS, now), []


def _workers(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    engine = [m for m in members if m.role != KEEPER]
    if not engine:
        return _to(course, KEEPER_PHASE, now), []
    asked = any(s.phase == CORES for s in course.sent)
    if now - course.since >= (min(limits.term_s, WORKERS_S) if asked else limits.term_s):
        return _to(course, KILL, now), []
    fresh = [m for m in engine if not _was_sent(course, m, ("SIGTERM",), (CORES, WORKERS))]
    return course, _signal(sorted(fresh, key=_in_order), "SIGTERM", "left over, asked to end")


def _kill(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    engine = [m for m in members if m.role != KEEPER]
    if not engine or now - course.since >= limits.kill_s:
        return _to(course, KEEPER_PHASE, now), []
    return course, _kills(course, engine, "did not end when asked")


def _kills(course: Course, members: Sequence[Member], why: str) -> List[Step]:
    fresh = [m for m in members if not _was_sent(course, m, ("SIGKILL",), (KILL, KEEPER_PHASE))]
    return _signal(sorted(fresh, key=_in_order), "SIGKILL", why)


def _keeper(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    waited = now - course.since
    engine = [m for m in members if m.role != KEEPER]
    keepers = [m for m in members if m.role == KEEPER]
    if engine:  # a late one gets its signal; for what KILL did not end nothing more can be done, and its keeper has to reap it
        late = _kills(course, engine, "came up late") if waited < KEEPER_S else []
        over = waited >= KEEPER_S or (not late and not any(s.phase == KEEPER_PHASE for s in course.sent))
        return (_to(course, DONE, now) if over else course), late
    if not keepers or waited >= KEEPER_S + KEEPER_KILLED_S:
        return _to(course, DONE, now), []
    return course, (_kills(course, keepers, "keeper without an engine") if waited >= KEEPER_S else [])


def _in_order(member: Member) -> Tuple[int, int]:
    return (_KILL_ORDER[member.role], member.pid)


def _done(course: Course, members: Sequence[Member], now: float, limits: Limits) -> Tuple[Course, List[Step]]:
    return course, []


_PHASES = {ASK: _ask, CORES: _cores, WORKERS: _workers, KILL: _kill, KEEPER_PHASE: _keeper, DONE: _done}
