"""The order of a stop, without a process: who is signalled, when, and that it always ends."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import look, phases, plan
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import settings as settings_of_stop
from hypothesis import example, given, settings
from hypothesis import strategies as st

LIMITS = phases.Limits(grace_s=45, term_s=30, kill_s=10, drain_s=0)
SERVER = phases.Member(100, 1, "vllm", "S", phases.SERVER)
TRACKER = phases.Member(101, 1, "python", "S", phases.HELPER)
CORE = phases.Member(102, 1, "VLLM::EngineCor", "S", phases.CORE)
WORKERS = [phases.Member(pid, 1, "VLLM::Worker_TP", "S", phases.WORKER) for pid in (103, 104)]
KEEPER = phases.Member(99, 1, "python3", "S", phases.KEEPER)
TREE = [KEEPER, SERVER, TRACKER, CORE, *WORKERS]
#: What nobody can wait for longer: all phases one after the other.
LONGEST_S = 400.0


class Will(NamedTuple):
    """How a process behaves: seconds after which it ends on its own after a signal; None: it ignores that signal."""

    on_int: float | None = None
    on_term: float | None = None
    on_kill: float | None = 0.1
    with_parent: float | None = None  # after all servers and cores are gone


OBEDIENT = Will(on_int=0.5, on_term=0.5, with_parent=0.5)
STUBBORN = Will()
IMMORTAL = Will(on_kill=None)


def simulate(members, wills, limits=LIMITS, deaf_until=0.0, step_s=0.2):
    """Let the planner meet processes with a will of their own: (what was sent as (seconds, signal, pid), pids that are left)."""
    course, now, sent, dies = phases.Course(), 0.0, [], {}
    roots = {m.pid for m in members if m.role in (phases.SERVER, phases.CORE)}
    while course.phase != phases.DONE:
        assert now < LONGEST_S, "the stop does not end"
        alive = [m for m in members if dies.get(m.pid, LONGEST_S) > now]
        for m in alive:
            if m.pid not in roots and not roots & {a.pid for a in alive} and wills[m.pid].with_parent is not None:
                dies[m.pid] = min(dies.get(m.pid, LONGEST_S), now + wills[m.pid].with_parent)
        course, steps = phases.advance(course, alive, now, limits)
        for step in steps:
            sent.append((round(now, 1), step.signal, step.pid))
            how = {"SIGINT": "on_int", "SIGTERM": "on_term", "SIGKILL": "on_kill"}.get(step.signal)
            after = getattr(wills[step.pid], how) if how else None
            if after is not None and (now >= deaf_until or step.signal == "SIGKILL"):
                dies[step.pid] = min(dies.get(step.pid, LONGEST_S), now + after)
        now += step_s
    return sent, {m.pid for m in members if dies.get(m.pid, LONGEST_S) > now}


def signals(sent):
    return [(signal, pid) for _, signal, pid in sent]


ALL_OBEDIENT = {m.pid: OBEDIENT for m in TREE} | {99: Will(with_parent=1.0)}


def test_an_obedient_engine_gets_one_signal():
    sent, left = simulate([KEEPER, SERVER, TRACKER, *WORKERS], ALL_OBEDIENT)
    assert (signals(sent), left) == ([("SIGINT", 100)], set())


def test_an_engine_without_its_server_is_asked_at_its_core_first():
    # vLLM 55510: SIGKILL of the API server leaves core and workers on the cards; they end with the core.
    tree = [CORE, *WORKERS]
    sent, left = simulate(tree, {102: Will(on_term=12), 103: Will(with_parent=1), 104: Will(with_parent=1)})
    assert (signals(sent), left) == ([("SIGTERM", 102)], set())


def test_the_whole_order_for_processes_that_obey_nothing_but_kill():
    sent, left = simulate(TREE, {m.pid: STUBBORN for m in TREE})
    assert left == set()
    assert signals(sent) == [
        ("SIGINT", 100),
        ("SIGTERM", 100),  # nothing moved for 20 s
        ("SIGTERM", 100),
        ("SIGTERM", 102),
        ("SIGTERM", 103),
        ("SIGTERM", 104),
        ("SIGTERM", 101),
        ("SIGTERM", 100),
        ("SIGKILL", 102),
        ("SIGKILL", 103),
        ("SIGKILL", 104),
        ("SIGKILL", 101),
        ("SIGKILL", 100),
        ("SIGKILL", 99),
    ]
    times = {(s, p): at for at, s, p in sent}
    assert times["SIGTERM", 102] == pytest.approx(45, abs=1)
    assert times["SIGTERM", 103] == pytest.approx(75, abs=1)
    assert times["SIGKILL", 102] == pytest.approx(85, abs=1)


def test_a_signal_that_was_lost_while_loading_is_sent_again():
    sent, left = simulate([KEEPER, SERVER, CORE], ALL_OBEDIENT, deaf_until=10)
    assert signals(sent)[:2] == [("SIGINT", 100), ("SIGTERM", 100)]
    assert sent[1][0] == pytest.approx(phases.REPEAT_S, abs=1)
    assert left == set()


def test_the_engines_own_time_for_open_requests_is_not_cut_short():
    limits = phases.Limits(grace_s=1, term_s=1, kill_s=1, drain_s=60)
    sent, _ = simulate([SERVER, CORE], {100: Will(on_int=58), 102: Will(with_parent=1, on_int=1)}, limits)
    assert [s for s in sent if s[0] < 58] == [(0.0, "SIGINT", 100)]


def test_a_server_that_waits_alone_for_clients_is_given_a_moment():
    # Seen: "Waiting for connections to close" for 41 s, with core and workers gone; its resource tracker lives with it.
    sent, left = simulate([KEEPER, SERVER, TRACKER], {99: Will(with_parent=1), 100: Will(on_term=1), 101: Will(with_parent=1)})
    assert signals(sent)[:2] == [("SIGINT", 100), ("SIGTERM", 101)]
    assert ("SIGTERM", 100) in signals(sent)
    assert sent[1][0] == pytest.approx(phases.LINGER_S, abs=1)
    assert left == set()


GATEWAY_LIMITS = phases.Limits(grace_s=45, term_s=1, kill_s=1, drain_s=80, linger_s=80)


@pytest.mark.parametrize("children", [[], [WORKERS[0]], WORKERS], ids=["ours", "nginx", "haproxy"])
def test_a_gateway_gets_one_signal_while_its_requests_end(children):
    # Its children are told by their parent; a second signal to it, or one to them, would cut the requests off.
    wills = {99: Will(with_parent=1), 100: Will(on_int=75), **{child.pid: Will(on_term=0, with_parent=0.5) for child in children}}
    sent, left = simulate([KEEPER, SERVER, *children], wills, GATEWAY_LIMITS)
    assert (sent, left) == ([(0.0, "SIGINT", 100)], set())


def test_a_gateway_that_does_not_end_is_ended_after_its_time():
    sent, left = simulate([KEEPER, SERVER], {99: Will(with_parent=1), 100: STUBBORN}, GATEWAY_LIMITS)
    assert signals(sent) == [("SIGINT", 100), ("SIGTERM", 100), ("SIGKILL", 100)]
    assert sent[1][0] == pytest.approx(80, abs=1)
    assert left == set()


def test_a_server_may_linger_as_long_as_service_json_says(tmp_path):
    assert settings_of_stop.read(str(tmp_path), "tiny", []).limits.linger_s == phases.LINGER_S
    folder = layout.service_dir(str(tmp_path), "tiny.gateway")
    folder.mkdir(parents=True)
    layout.write_json(folder / "service.json", {"stop": {"linger_s": 310}})
    limits = settings_of_stop.read(str(tmp_path), "tiny.gateway", [None]).limits
    assert (limits.linger_s, limits.drain_s) == (310, 310)
    layout.write_json(folder / "service.json", {"stop": {"linger_s": "soon"}})
    assert settings_of_stop.read(str(tmp_path), "tiny.gateway", []).limits == phases.Limits()


def test_a_server_with_an_engine_is_never_called_alone():
    sent, _ = simulate([SERVER, WORKERS[0]], {100: Will(on_int=19), 103: Will(with_parent=1)})
    assert signals(sent) == [("SIGINT", 100)]


def test_a_stopped_process_is_let_go_on_after_the_signal():
    stopped = CORE._replace(state="T")
    sent, _ = simulate([stopped], {102: STUBBORN})
    assert signals(sent) == [("SIGTERM", 102), ("SIGCONT", 102), ("SIGKILL", 102)]


def test_after_kill_the_wait_is_bounded_and_the_keeper_stays_to_reap():
    # uvm_spin_loop: state R in the driver, no signal ends it.
    spinning = CORE._replace(state="R")
    sent, left = simulate([KEEPER, spinning], {99: STUBBORN, 102: IMMORTAL})
    assert left == {99, 102}
    assert signals(sent) == [("SIGTERM", 102), ("SIGKILL", 102)]


def test_a_keeper_that_hangs_on_without_an_engine_is_ended():
    sent, left = simulate([KEEPER], {99: STUBBORN})
    assert (signals(sent), left) == ([("SIGKILL", 99)], set())
    assert sent[0][0] == pytest.approx(phases.KEEPER_S, abs=1)


def test_nothing_to_stop_is_done_at_once():
    course, steps = phases.advance(phases.Course(), [], 0.0, LIMITS)
    assert (course.phase, steps) == (phases.DONE, [])


def test_instances_are_asked_together_and_what_belongs_to_none_waits():
    groups = {0: [SERVER], 1: [SERVER._replace(pid=200)], None: [WORKERS[0]]}
    courses, steps = plan.advance_all({key: phases.Course() for key in groups}, groups, 0.0, LIMITS)
    assert [(s.signal, s.pid) for s in steps] == [("SIGINT", 100), ("SIGINT", 200)]
    courses, steps = plan.advance_all(courses, {0: [], 1: [SERVER._replace(pid=200)], None: [WORKERS[0]]}, 1.0, LIMITS)
    assert steps == []
    for now in (1.0, 4.0):  # the children's moment
        courses, steps = plan.advance_all(courses, {None: [WORKERS[0]]}, now, LIMITS)
    assert [(s.signal, s.pid) for s in steps] == [("SIGTERM", 103)]


def test_what_a_stop_would_do_at_most_is_known_before():
    planned = plan.schedule({0: [KEEPER, SERVER, CORE]}, LIMITS)
    assert (planned[0].after_s, planned[0].step.signal, planned[0].step.pid) == (0.0, "SIGINT", 100)
    assert [p.step.signal for p in planned].count("SIGKILL") == 2  # the keeper has to reap
    assert planned == sorted(planned, key=lambda p: p.after_s)


@pytest.mark.parametrize(
    ("comm", "command", "keeper", "leader", "role"),
    [
        ("python3", "python3 keeper.py", True, False, phases.KEEPER),
        ("vllm", "vllm serve", False, True, phases.SERVER),
        ("VLLM::EngineCor", "VLLM::EngineCore", False, False, phases.CORE),
        ("VLLM::EngineCor", "VLLM::EngineCore_DP1", False, False, phases.CORE),
        ("VLLM::Worker_TP", "VLLM::Worker_TP1", False, False, phases.WORKER),
        ("python", "python -c from multiprocessing.resource_tracker import main", False, False, phases.HELPER),
        ("python", "python -c from multiprocessing.spawn import spawn_main", False, False, phases.WORKER),
    ],
)
def test_what_a_process_is(comm, command, keeper, leader, role):
    assert phases.role_of(comm, command, keeper, leader) == role


# -- any processes, any behaviour ------------------------------------------------------------------------------------

delays = st.none() | st.floats(0, 80)
wills = st.builds(Will, delays, delays, st.none() | st.floats(0, 15), delays)
members = st.lists(
    st.tuples(
        st.sampled_from([phases.KEEPER, phases.SERVER, phases.CORE, phases.HELPER, phases.WORKER]),
        st.sampled_from("SRDTt"),
        wills,
    ),
    max_size=8,
)


@settings(max_examples=300)
@given(
    tree=members,
    limits=st.builds(phases.Limits, st.floats(0, 60), st.floats(0, 40), st.floats(0, 20), st.floats(0, 40), st.floats(0, 60)),
    deaf_until=st.floats(0, 60),
)
def test_a_stop_always_ends_and_signals_only_members_in_order(tree, limits, deaf_until):
    made = [phases.Member(100 + i, 1, "x", state, role) for i, (role, state, _) in enumerate(tree)]
    sent, left = simulate(made, {100 + i: will for i, (_, _, will) in enumerate(tree)}, limits, deaf_until, step_s=0.5)
    rank = {"SIGINT": 0, "SIGTERM": 1, "SIGCONT": 1, "SIGKILL": 2}
    for m in made:
        mine = [signal for _, signal, pid in sent if pid == m.pid]
        assert mine.count("SIGINT") <= 1
        assert mine.count("SIGKILL") <= 1
        assert [rank[s] for s in mine if s != "SIGCONT"] == sorted(rank[s] for s in mine if s != "SIGCONT")
        if m.role == phases.KEEPER:
            assert set(mine) <= {"SIGKILL"}
        elif m.pid in left and limits.kill_s > 0:
            assert "SIGKILL" in mine  # it was not given up before
    assert {pid for _, _, pid in sent} <= {m.pid for m in made}


# -- whose processes: random forests ---------------------------------------------------------------------------------

FOLDER, RUNTIME, SHARED = "/home/llm/modelyard/services/tiny", "/rt/vllm-abc", "/rt"
HERE, CONTAINER = "mnt:[1]", "mnt:[2]"
UID, OTHER_UID = 1000, 1001
KEEPERS = {i: identity.Recorded(1000 + 10 * i, 500) for i in range(3)}
LEADERS = {i: identity.Recorded(1001 + 10 * i, 501) for i in range(3)}


def claim_of(instance=None):
    mine = [instance] if instance is not None else list(KEEPERS)
    others = {p for i in KEEPERS for p in (KEEPERS[i], LEADERS[i]) if i not in mine}
    return identity.Claim(
        "tiny",
        FOLDER,
        RUNTIME,
        frozenset(LEADERS[i] for i in mine),
        frozenset(KEEPERS[i] for i in mine),
        (SHARED,),
        UID,
        frozenset(f"modelyard-tiny-{i}.service" for i in mine),
        instance,
        frozenset(others),
    )


def seen(pid, kind, i, state, start=600):
    """A process of a kind, and whether it is ours (of instance i), a stranger or of no known instance."""
    keeper, own = KEEPERS[i], {"marker": "tiny", "cwd": f"{FOLDER}/instance-{i}/run", "instance": str(i)}
    lib = frozenset({f"{RUNTIME}/lib/libtorch.so"})
    sid, uid, mounts, values, comm, tty = pid, UID, HERE, {}, "VLLM::Worker_TP", 0
    if kind == "worker":
        sid, values = keeper.pid, {**own, "files": lib}
    elif kind == "worker of an earlier version":
        sid, values = keeper.pid, {"marker": "tiny", "cwd": own["cwd"], "files": lib}
    elif kind == "worker without title memory":  # its environment was overwritten
        sid, values = keeper.pid, {"cwd": own["cwd"], "files": lib}
    elif kind == "orphan in a session of its own":
        values = {**own, "files": lib}
    elif kind == "in the unit, moved away from the session":
        values = {"cwd": own["cwd"], "unit": f"modelyard-tiny-{i}.service"}
    elif kind == "leader":
        pid, start, sid, values = LEADERS[i].pid, LEADERS[i].start, keeper.pid, own
    elif kind == "keeper":
        pid, start, sid, values, comm = keeper.pid, keeper.start, keeper.pid, own, "python3"
    elif kind == "shell in the folder":
        values, comm = {"cwd": own["cwd"]}, "bash"
    elif kind == "shell with the env file":
        values, comm = {"cwd": own["cwd"], "marker": "tiny", "instance": str(i)}, "bash"
    elif kind == "admin tries the runtime in the folder":
        values, comm = {"cwd": own["cwd"], "files": lib}, "python"
    elif kind == "shell with the env file and the runtime":
        values, comm, tty = {**own, "files": lib}, "python", 34816
    elif kind == "name alone":
        values = {"files": frozenset({"/other/lib/libtorch.so"})}
    elif kind == "another service of the same runtime":
        values = {"marker": "tiny-2", "instance": str(i), "cwd": FOLDER + "-2/instance-0/run", "files": lib}
    elif kind == "another user with everything":
        sid, uid, values = keeper.pid, OTHER_UID, {**own, "files": lib}
    elif kind == "container with the same paths":
        mounts, values = CONTAINER, {**own, "files": lib}
    elif kind == "recorded pid that was given again":
        pid, start, comm = LEADERS[i].pid, 900, "python"
    elif kind == "older than the session's number":
        sid, start, values = keeper.pid, 100, {"cwd": "/"}
    elif kind == "the unit's name in another home":
        values = {
            "marker": "tiny",
            "instance": str(i),
            "unit": f"modelyard-tiny-{i}.service",
            "cwd": "/other/services/tiny/instance-0",
        }
    process = proc.Process(pid, 1, sid, sid, state, start, comm, uid, 1, tty)
    return identity.Seen(process, mounts=mounts, living=state != "Z", **values)


OURS = ["worker", "worker of an earlier version", "worker without title memory", "orphan in a session of its own"]
OURS += ["in the unit, moved away from the session", "leader", "keeper"]
NOT_OURS = ["shell in the folder", "shell with the env file", "admin tries the runtime in the folder", "name alone"]
NOT_OURS += ["shell with the env file and the runtime"]
NOT_OURS += ["another service of the same runtime", "another user with everything", "container with the same paths"]
NOT_OURS += ["recorded pid that was given again", "older than the session's number", "the unit's name in another home"]
forests = st.lists(
    st.tuples(st.sampled_from(OURS + NOT_OURS), st.integers(0, 2), st.sampled_from("SSSRDTZ")), min_size=1, max_size=25
)


@settings(max_examples=400)
@given(forest=forests, indexes=st.none() | st.sets(st.integers(0, 2), min_size=1))
@example(forest=[(kind, 0, "S") for kind in OURS + NOT_OURS], indexes=None)
@example(forest=[(kind, i, "S") for kind in OURS + NOT_OURS for i in range(3)], indexes={1})
def test_no_stranger_is_ever_in_the_plan_and_all_of_ours_are(forest, indexes):
    made = {}
    for number, (kind, i, state) in enumerate(forest):
        one = seen(5000 + number, kind, i, state)
        made[one.process.pid] = (one, kind in OURS and (indexes is None or i in indexes), i)
    table = {pid: one.process for pid, (one, _, _) in made.items()}
    claims = {i: claim_of(i) for i in (indexes if indexes is not None else range(3))}
    if indexes is None:
        claims[None] = claim_of()
    groups, wanted = {key: [] for key in claims}, set()
    for one, ours, i in made.values():
        verdict, key, _ = look.assign(one, claims, table, HERE)
        assert (verdict == identity.OURS) is ours, (one, verdict)
        if ours:
            assert key == i
        if ours and one.living:
            wanted.add(one.process.pid)
            known = identity.Recorded(one.process.pid, one.process.start)
            role = phases.role_of(one.process.comm, "", known in KEEPERS.values(), known in LEADERS.values())
            groups[key].append(phases.Member(one.process.pid, one.process.start, one.process.comm, one.process.state, role))
    planned = plan.schedule(groups, LIMITS)
    assert {p.step.pid for p in planned} <= wanted
    engines = {m.pid for group in groups.values() for m in group if m.role != phases.KEEPER}
    assert engines <= {p.step.pid for p in planned if p.step.signal == "SIGKILL"}


def test_signs_that_contradict_each_other_are_for_a_stop_of_the_whole_service_only():
    both = seen(5000, "worker", 0, "S")._replace(instance="1")
    table = {5000: both.process}
    assert look.assign(both, {0: claim_of(0)}, table, HERE)[0] == identity.SUSPECT
    assert look.assign(both, {1: claim_of(1)}, table, HERE)[0] == identity.SUSPECT
    claims = {0: claim_of(0), 1: claim_of(1), None: claim_of()}
    assert look.assign(both, claims, table, HERE)[:2] == (identity.OURS, None)
