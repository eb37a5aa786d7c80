from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, proc
from unit import fake_proc, worlds

FOLDER = "/opt/modelyard/services/tiny"
RUNTIME = "/opt/modelyard/runtimes/vllm"


def claim(folder=FOLDER, runtime=RUNTIME, recorded=(), sessions=(), service="tiny"):
    return identity.Claim(
        service=service,
        folder=folder,
        runtime=runtime,
        recorded=frozenset(identity.Recorded(*r) for r in recorded),
        sessions=frozenset(identity.Recorded(*s) for s in sessions),
    )


def census(root, **known):
    """pid -> (signs, verdict)."""
    return {f.process.pid: (set(f.signs), f.verdict) for f in identity.census(claim(**known), root=root)}


# -- signs, from a fake /proc ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [
        ((), "stranger"),
        (("marker",), "suspect"),
        (("folder",), "suspect"),
        (("runtime",), "suspect"),
        (("session",), "suspect"),
        (("recorded",), "suspect"),
        (("marker", "runtime"), "suspect"),  # the env file sourced into a shell, and a Python of a shared runtime
        (("folder", "runtime"), "suspect"),  # an admin who tries something in the folder
        (("marker", "folder"), "suspect"),  # a shell there, into which the env file was sourced
        (("marker", "folder", "runtime"), "ours"),
        (("session", "marker"), "ours"),
        (("session", "folder"), "ours"),
        (("session", "runtime"), "ours"),
        (("recorded", "session"), "ours"),
        (("recorded", "marker"), "ours"),
        (("recorded", "session", "marker", "folder", "runtime"), "ours"),
        (("recorded", "session", "marker", "folder", "runtime", "other user"), "suspect"),
        (("recorded", "session", "marker", "folder", "runtime", "other mounts"), "suspect"),  # a container with our paths
        (("unit",), "suspect"),
        (("unit", "marker"), "suspect"),  # a unit of the same name, of another home
        (("unit", "marker", "runtime"), "suspect"),
        (("unit", "folder"), "ours"),
        (("session", "unit"), "ours"),
        (("instance",), "stranger"),
        (("session", "instance"), "suspect"),  # which instance it is proves no sign of its own
        (("marker", "folder", "runtime", "instance"), "ours"),
        (("marker", "folder", "runtime", "no instance"), "suspect"),
        (("marker", "folder", "runtime", "other instance"), "other instance"),
        (("session", "marker", "instance", "other instance"), "suspect"),
    ],
)
def test_one_sign_is_never_enough_and_two_are_when_one_of_them_ties_it_to_a_start(signs, verdict):
    assert identity.verdict(frozenset(signs)) == verdict


def test_every_sign_is_explained():
    assert set().union(*identity.RULES) | identity.AGAINST | {"instance", "handed over"} == set(identity.SIGNS)


def test_a_worker_shows_marker_session_folder_and_runtime(tmp_path):
    fake_proc.add(
        tmp_path,
        20,
        environ={"MODELYARD_SERVICE": "tiny"},
        cwd=f"{FOLDER}/instance-0/run",
        maps=(f"{RUNTIME}/lib/python3.11/site-packages/torch/lib/libtorch.so",),
        sid=10,
        start=200,
    )
    shown = census(tmp_path, sessions=[(10, 100)])
    assert shown == {20: ({"marker", "session", "folder", "runtime"}, "ours")}


def test_the_resource_tracker_shows_the_runtime_by_its_program(tmp_path):
    fake_proc.add(
        tmp_path,
        20,
        environ={"MODELYARD_SERVICE": "tiny"},
        command=(f"{RUNTIME}/bin/python", "-c", "from multiprocessing.resource_tracker import main"),
        cwd=f"{FOLDER}/instance-0/run",
    )
    assert census(tmp_path) == {20: ({"marker", "folder", "runtime"}, "ours")}


def test_the_runtime_alone_is_no_sign_at_all(tmp_path):
    # Another service shares it.
    fake_proc.add(tmp_path, 20, command=(f"{RUNTIME}/bin/vllm", "serve"), maps=(f"{RUNTIME}/lib/libtorch.so",))
    assert census(tmp_path) == {}


@pytest.mark.parametrize(
    "cwd",
    ["/opt/modelyard/services/tiny-2/instance-0/run", "/opt/modelyard/services", "/opt/modelyard/services/tin", "/"],
)
@pytest.mark.parametrize("marker", [{}, {"MODELYARD_SERVICE": "tiny-2"}, {"MODELYARD_SERVICE": ""}])
def test_a_service_with_a_similar_name_is_a_stranger(tmp_path, cwd, marker):
    fake_proc.add(tmp_path, 20, cwd=cwd, environ=marker, command=("/other/bin/vllm", "serve", "tiny"))
    assert census(tmp_path) == {}


def test_a_runtime_with_a_similar_name_is_not_ours(tmp_path):
    fake_proc.add(tmp_path, 20, cwd=FOLDER, command=(f"{RUNTIME}-old/bin/python",), maps=(f"{RUNTIME}-old/lib/a.so",))
    assert census(tmp_path) == {20: ({"folder"}, "suspect")}


@pytest.mark.parametrize(
    ("sid", "start", "leader", "session"),
    [
        (10, 200, "S 100", True),  # the keeper lives
        (10, 200, "Z 100", True),  # it waits to be reaped
        (10, 200, None, True),  # it is gone, its session lives on
        (10, 200, "S 150", False),  # its number belongs to a younger process
        (10, 50, None, False),  # older than the keeper: another session of that number
        (11, 200, "S 100", False),
    ],
)
def test_a_session_counts_only_while_its_number_is_still_the_keepers(tmp_path, sid, start, leader, session):
    fake_proc.add(tmp_path, 20, sid=sid, start=start)
    if leader:
        state, began = leader.split()
        fake_proc.add(tmp_path, 10, sid=10, start=int(began), state=state)
    shown = census(tmp_path, sessions=[(10, 100)])
    assert ("session" in shown.get(20, ({}, ""))[0]) is session


def test_a_recorded_pid_counts_only_with_its_start_time(tmp_path):
    fake_proc.add(tmp_path, 20, start=100)
    fake_proc.add(tmp_path, 21, start=100)
    assert census(tmp_path, recorded=[(20, 100), (21, 99)]) == {20: ({"recorded"}, "suspect")}


def test_an_empty_claim_claims_nobody(tmp_path):
    fake_proc.add(tmp_path, 20, environ={"MODELYARD_SERVICE": "other"}, cwd="/")
    assert census(tmp_path, folder="", runtime="") == {}


# -- one instance of several ------------------------------------------------------------------------------------------


def of_instance(index, **known):
    return claim(**known)._replace(instance=index)


@pytest.mark.parametrize(
    ("environ", "cwd", "index", "verdict"),
    [
        ({"MODELYARD_SERVICE": "tiny", "MODELYARD_INSTANCE": "1"}, f"{FOLDER}/instance-1/run", 1, "ours"),
        ({"MODELYARD_SERVICE": "tiny", "MODELYARD_INSTANCE": "1"}, f"{FOLDER}/instance-1/run", 0, "other instance"),
        ({"MODELYARD_SERVICE": "tiny"}, f"{FOLDER}/instance-1/run", 1, "ours"),  # started by an earlier version
        ({"MODELYARD_SERVICE": "tiny"}, f"{FOLDER}/instance-1/run", 0, "other instance"),
        ({"MODELYARD_SERVICE": "tiny"}, f"{FOLDER}/instance-11/run", 1, "other instance"),
        ({"MODELYARD_SERVICE": "tiny"}, FOLDER, 1, "suspect"),  # nothing says which
        (
            {"MODELYARD_SERVICE": "tiny", "MODELYARD_INSTANCE": "2"},
            f"{FOLDER}/instance-1/run",
            1,
            "suspect",
        ),  # it contradicts itself
    ],
)
def test_a_process_belongs_to_the_instance_that_marker_and_folder_name(tmp_path, environ, cwd, index, verdict):
    fake_proc.add(tmp_path, 20, environ=environ, cwd=cwd, command=(f"{RUNTIME}/bin/python",))
    assert [f.verdict for f in identity.census(of_instance(index), root=tmp_path)] == [verdict]
    assert [f.verdict for f in identity.census(claim(), root=tmp_path)] == ["ours"]


def test_a_process_of_an_earlier_version_belongs_to_the_instance_of_its_session(tmp_path):
    fake_proc.add(tmp_path, 20, environ={"MODELYARD_SERVICE": "tiny"}, sid=10, start=200)
    mine = of_instance(0, sessions=[(10, 100)])
    other = of_instance(1)._replace(others=frozenset({identity.Recorded(10, 100)}))
    assert [f.verdict for f in identity.census(mine, root=tmp_path)] == ["ours"]
    assert [f.verdict for f in identity.census(other, root=tmp_path)] == ["other instance"]


def test_the_unit_of_a_process_is_a_sign_only_where_the_service_has_one(tmp_path):
    fake_proc.add(tmp_path, 20, cwd=f"{FOLDER}/instance-0/run", sid=20)
    (tmp_path / "20/cgroup").write_text("0::/user.slice/user-1000.slice/user@1000.service/app.slice/modelyard-tiny-0.service\n")
    with_unit = claim()._replace(units=frozenset({"modelyard-tiny-0.service"}))
    assert [(set(f.signs), f.verdict) for f in identity.census(with_unit, root=tmp_path)] == [({"folder", "unit"}, "ours")]
    assert census(tmp_path) == {20: ({"folder"}, "suspect")}


def test_a_half_ended_process_shows_its_signs_through_a_living_thread(tmp_path):
    fake_proc.add(tmp_path, 20, state="Z", sid=10, start=200, comm="VLLM::Worker_TP")
    for name in ("cwd", "environ", "maps"):
        (tmp_path / "20" / name).unlink()
    fake_proc.add(tmp_path / "20/task", 20, state="Z", start=200)
    fake_proc.add(tmp_path / "20/task", 21, state="R", environ={"MODELYARD_SERVICE": "tiny"}, cwd=f"{FOLDER}/instance-0/run")
    found = identity.census(claim(sessions=[(10, 100)]), root=tmp_path)
    assert [(f.process.pid, set(f.signs), f.living, f.verdict) for f in found] == [
        (20, {"session", "marker", "folder"}, True, "ours")
    ]
    assert proc.alive(20, 200, tmp_path)
    (tmp_path / "20/task/21/stat").write_text(fake_proc.stat_line(21, "x", "Z"))
    assert not proc.alive(20, 200, tmp_path)
    assert identity.census(claim(sessions=[(10, 100)]), root=tmp_path)[0].living is False


# -- the same with real processes -----------------------------------------------------------------------------------


@pytest.fixture
def spawn():
    """Starts `sleep` as asked, and ends exactly these at the end."""
    children = []

    def start(program="sleep", **how):
        child = subprocess.Popen([program, "60"], executable="/bin/sleep", **how)
        children.append(child)
        limit = time.monotonic() + 5
        while not (proc.command(child.pid) or "").endswith("60") and time.monotonic() < limit:
            time.sleep(0.005)
        return child.pid

    yield start
    for child in children:
        child.kill()
        child.wait()


def mine(pids, **known):
    return {pid: shown for pid, shown in census(proc.PROC, **known).items() if pid in pids}


def test_an_admin_who_stands_in_the_folder_is_suspect_and_left_alone(tmp_path, spawn):
    admin = spawn(cwd=tmp_path)
    assert mine({admin}, folder=str(tmp_path)) == {admin: ({"folder"}, "suspect")}


def test_an_admin_who_uses_the_runtime_in_the_folder_is_suspect_and_left_alone(tmp_path, spawn):
    runtime = tmp_path / "runtime"
    admin = spawn(program=f"{runtime}/bin/python", cwd=tmp_path)
    found = mine({admin}, folder=str(tmp_path), runtime=str(runtime))
    assert found == {admin: ({"folder", "runtime"}, "suspect")}


def test_a_process_with_marker_folder_and_runtime_is_ours_and_a_lookalike_is_nobody(tmp_path, spawn):
    name = f"tiny-{os.getpid()}"
    runtime = tmp_path / "runtime"
    marked = {"MODELYARD_SERVICE": name}
    ours = spawn(program=f"{runtime}/bin/python", cwd=tmp_path, env=marked, start_new_session=True)  # an engine has no terminal
    lookalike = spawn(program=f"{tmp_path}/bin/vllm serve {name}", cwd="/", env={"SERVICE": name})
    neighbour = spawn(cwd="/", env={"MODELYARD_SERVICE": f"{name}-2"})
    found = mine({ours, lookalike, neighbour}, folder=str(tmp_path), service=name, runtime=str(runtime))
    assert found == {ours: ({"marker", "folder", "runtime"}, "ours")}


def test_a_real_session_is_a_sign_for_its_members(tmp_path, spawn):
    leader = spawn(start_new_session=True, cwd="/")
    start = proc.read(leader).start
    found = mine({leader}, folder=str(tmp_path), sessions=[(leader, start)])
    assert found == {leader: ({"session", "recorded"}, "ours")}
    assert mine({leader}, folder=str(tmp_path), sessions=[(leader, start + 1)]) == {}


def test_the_looking_process_and_its_ancestors_are_never_found(tmp_path):
    # Shell and Python both stand in the folder and carry the marker: an admin who deploys from there.
    look = (
        "from ansible_collections.modelyard.core.plugins.module_utils.process import identity as i;"
        f"c = i.Claim('tiny', {str(tmp_path)!r}, '', frozenset(), frozenset());"
        "print([f.process.pid for f in i.census(c)])"
    )
    shell = subprocess.run(
        ["/bin/sh", "-c", f'sleep 60 & other=$!; "{sys.executable}" -c "$CODE"; echo $other; kill $other'],
        cwd=tmp_path,
        env={
            "MODELYARD_SERVICE": "tiny",
            "CODE": look,
            "PYTHONPATH": str(worlds.ROOT / "collections"),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    found, other = shell.stdout.splitlines()
    assert found == f"[{other}]"


def test_a_found_process_is_described_for_people(tmp_path, spawn):
    pid = spawn(cwd=tmp_path)
    table = {pid: proc.read(pid)}
    described = identity.describe(identity.census(claim(folder=str(tmp_path)), table)[0])
    assert described == {
        "pid": pid,
        "start": table[pid].start,
        "ppid": os.getpid(),
        "state": described["state"],
        "living": True,
        "user": proc.user_name(os.geteuid()),
        "comm": "sleep",
        "command": "sleep 60",
        "signs": ["folder"],
        "verdict": "suspect",
    }
    assert described["state"] in ("S", "R", "D")
