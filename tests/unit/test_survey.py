"""One look at a host, part by part, on this machine."""

from __future__ import annotations

import ctypes.util
import getpass
import http.server
import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import host, libraries, models, runtimes, services
from unit import worlds


def test_the_machine_is_described_in_the_units_that_the_planner_uses():
    seen = host.about({"free_mib": 5})
    assert set(seen) == set(worlds.survey()["host"])
    assert seen["cores"] == sorted(os.sched_getaffinity(0))
    assert seen["user"] == getpass.getuser()
    assert 0 < seen["memory_available_mib"] <= seen["memory_total_mib"] < 10**8
    assert seen["shm_free_mib"] >= 0


def test_a_survey_has_the_shape_that_the_planner_is_tested_with(tmp_path):
    wanted = host.Request(str(tmp_path), runtimes=[str(tmp_path / "runtime")], models=[str(tmp_path / "model")], ports=[1])
    seen = host.look(wanted)
    assert set(seen) == set(worlds.survey())
    assert set(seen["models"][str(tmp_path / "model")]) == set(worlds.listing())
    assert set(seen["python"]) == {"path", "version", "short"}
    assert seen["services"] == {}
    assert json.loads(json.dumps(seen)) == seen


def test_a_library_is_looked_for_as_an_engine_will_and_not_as_this_login_does(tmp_path, monkeypatch):
    mine = ctypes.util.find_library("c")
    assert mine
    (tmp_path / "libmine.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    names = [mine, "libmine.so.1", "libnowhere.so.1"]
    found = libraries.look(names, [str(tmp_path), "/nonexistent"])
    assert found == {mine: [""], "libmine.so.1": [str(tmp_path)], "libnowhere.so.1": []}
    assert libraries.look([], ["/"]) == {}


# -- models ---------------------------------------------------------------------------------------------------------


def test_a_model_folder_is_listed_with_sizes_shards_and_config(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    (tmp_path / "a.safetensors").write_bytes(b"x" * 10)
    index = {"weight_map": {"w1": "b.safetensors", "w2": "a.safetensors", "w3": "a.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/extra.bin").write_bytes(b"xyz")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/part.incomplete").write_bytes(b"x")
    (tmp_path / "link.json").symlink_to(tmp_path / "config.json")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    listing = models.model_listing(str(tmp_path))
    assert listing["files"] == {
        "a.safetensors": 10,
        "config.json": 33,
        "link.json": 33,
        "model.safetensors.index.json": 85,
        "sub/extra.bin": 3,
    }
    assert listing["shards"] == ["a.safetensors", "b.safetensors"]
    assert listing["config"] == {"max_position_embeddings": 4096}
    assert (listing["exists"], listing["problem"]) == (True, "")


@pytest.mark.parametrize("config", ["", "{", "[]"])
def test_a_config_that_cannot_be_read_is_empty_and_breaks_nothing(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    assert models.model_listing(str(tmp_path))["config"] == {}


def test_a_model_that_is_not_there_or_no_folder_does_not_exist(tmp_path):
    (tmp_path / "file").write_text("x")
    for name in ("absent", "file", "file/below"):
        listing = models.model_listing(str(tmp_path / name))
        assert (listing["exists"], listing["files"]) == (False, {})


# -- as another user ------------------------------------------------------------------------------------------------


def as_nobody(expression):
    """The value of a Python expression about the survey, as a user without rights (ourselves when we are not root)."""
    code = (
        "import json, os, sys\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.survey import host, models, runtimes\n"
        "if os.geteuid() == 0:\n    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"print(json.dumps({expression}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(worlds.ROOT / "collections"), "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def locked(tmp_path):
    """A folder that its owner alone may look into, and he only as root."""
    folder = tmp_path / "locked"
    (folder / "inside").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def test_a_home_in_a_folder_that_may_not_be_entered_is_explained(locked):
    problem = as_nobody(f"host.home_problem({str(locked / 'inside/home')!r})")
    assert problem.startswith("no right to write in ")
    assert f"(owner {getpass.getuser()})" in problem


def test_a_model_that_may_not_be_read_is_explained_and_breaks_nothing(locked):
    listing = as_nobody(f"models.model_listing({str(locked / 'inside')!r})")
    assert "Permission denied" in listing["problem"]


def test_a_runtime_that_may_not_be_entered_breaks_nothing(locked):
    seen = as_nobody(f"runtimes.runtime({str(locked / 'inside')!r}, False)")
    assert seen["complete"] is False


@pytest.mark.parametrize(
    ("make", "problem"),
    [("folder", ""), ("nothing", ""), ("file", "{home} is not a folder")],
    ids=["there", "to be made", "a file"],
)
def test_a_home_is_fine_when_it_is_ours_or_could_be_made(tmp_path, make, problem):
    home = tmp_path / "a/b" if make == "nothing" else tmp_path / "home"
    if make == "folder":
        home.mkdir()
    elif make == "file":
        home.write_text("")
    assert host.home_problem(str(home)) == problem.format(home=home)


# -- interpreters and runtimes --------------------------------------------------------------------------------------


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "short"), [("echo 3.12.5", "3.12"), ("echo broken >&2; exit 1", "")], ids=["a Python", "none"]
)
def test_the_interpreter_that_was_asked_for_is_asked_for_its_version(tmp_path, script, short):
    path = program(tmp_path / "python", script)
    seen = runtimes.python(path)
    assert (seen["path"], seen["short"]) == (path, short)
    assert seen["version"] == "3.12.5" if short else seen["version"].startswith("unknown (")


def test_an_interpreter_that_is_not_there_is_said_and_breaks_nothing(tmp_path):
    seen = runtimes.python(str(tmp_path / "absent"))
    assert seen["short"] == ""
    assert "No such file" in seen["version"]


def test_without_a_wish_the_running_interpreter_is_taken():
    assert runtimes.python("")["path"] == sys.executable


def test_a_runtime_is_judged_by_what_its_own_python_says(tmp_path):
    runtime = tmp_path / "rt"
    program(runtime / "bin/python", "echo some warning; echo 0.32.0+cpu")
    assert runtimes.runtime(str(runtime), full=False) == {
        "exists": True,
        "complete": False,
        "error": "",
        "vllm": "0.32.0+cpu",
        "contents": {},
    }
    (runtime / "modelyard.json").write_text("{}")
    assert runtimes.runtime(str(runtime), full=False)["complete"] is True


def test_a_runtime_that_cannot_import_says_its_last_line(tmp_path):
    runtime = tmp_path / "rt"
    program(
        runtime / "bin/python",
        'echo "Traceback" >&2; echo "ModuleNotFoundError: No module named vllm" >&2; exit 1',
    )
    seen = runtimes.runtime(str(runtime), full=True)
    assert (seen["vllm"], seen["error"]) == ("", "ModuleNotFoundError: No module named vllm")


def test_a_runtimes_check_does_not_take_the_callers_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    runtime = tmp_path / "rt"
    program(runtime / "bin/python", 'echo "[$PYTHONPATH$https_proxy]"')
    assert runtimes.runtime(str(runtime), full=False)["vllm"] == "[]"


@pytest.mark.parametrize("folder", ["absent", "empty"])
def test_a_folder_without_a_python_is_no_runtime(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    seen = runtimes.runtime(str(tmp_path / folder), full=False)
    assert (seen["exists"], seen["complete"], seen["vllm"]) == (folder == "empty", False, "")
    assert bool(seen["error"]) is (folder == "empty")


# -- ports ----------------------------------------------------------------------------------------------------------


def ports(wanted, ours):
    table = proc.processes()
    return services.ports(wanted, ours, services.listeners(opened.handles(table), table))


def test_a_port_that_somebody_listens_on_is_named_with_pid_user_and_command():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        seen = ports([port], {})
        ours = ports([port], {"tiny": {"pids": [os.getpid()]}})
        others = ports([port + 1 if port < 65535 else port - 1], {})
    assert seen == {
        str(port): {"service": "", "pid": os.getpid(), "user": getpass.getuser(), "command": proc.command(os.getpid())}
    }
    assert ours[str(port)]["service"] == "tiny"
    assert str(port) not in others
    assert ports([port], {}) == {}


def test_the_command_line_of_a_process_that_hangs_is_left_unread(monkeypatch):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        monkeypatch.setattr(proc, "command", lambda pid: pytest.fail(f"the command line of {pid} was read"))
        found = services.listeners(opened.handles({os.getpid(): proc.read(os.getpid())}), [])
    assert [(x["pid"], x["command"]) for x in found if x["port"] == port] == [(os.getpid(), "")]


def test_a_listener_that_may_not_be_looked_into_has_no_pid_but_a_user():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        unseen = services.listeners(opened.Handles({}, {os.getpid()}), proc.processes())
        assert services.ports([port], {}, unseen) == {
            str(port): {"service": "", "pid": None, "user": getpass.getuser(), "command": ""},
        }


# -- acceptance -----------------------------------------------------------------------------------------------------


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def healthy_port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def started(home, index, port, pid, start):
    """The files of an instance that this pid was started for."""
    folder = layout.instance_dir(str(home), "tiny", index)
    (folder / "run").mkdir(parents=True)
    request = {"host": "127.0.0.1", "port": port, "digest": f"d{index}", "launch": {"argv": ["x"]}, "runtime": ""}
    state = {"keeper": {"pid": pid, "start": start}, "leader": {"pid": pid, "start": start}, "request": request}
    layout.write_json(folder / "run/state.json", {**state, "log": "x", "started_at": 1.0, "ended": None})


def test_a_service_is_seen_from_its_folder_and_the_process_table(tmp_path, healthy_port):
    me = proc.read(os.getpid())
    started(tmp_path, 0, healthy_port, me.pid, me.start)
    started(tmp_path, 1, healthy_port, me.pid, me.start - 1)  # its pid belongs to another process now
    seen = services.service(str(tmp_path), "tiny", proc.processes())
    assert [(i["index"], i["alive"], i["ready"]) for i in seen["instances"]] == [(0, True, True), (1, False, False)]
    assert seen["accepted"] is False
    assert seen["leftovers"] == []


def test_what_an_instance_was_started_on_and_by_whom_is_told_as_far_as_it_was_written_down(tmp_path):
    me = proc.read(os.getpid())
    started(tmp_path, 0, 1, me.pid, me.start)
    started(tmp_path, 1, 1, me.pid, me.start)
    file = layout.instance_dir(str(tmp_path), "tiny", 1) / "run/state.json"
    state, devices = layout.read_json(file), [{"index": 1, "uuid": "GPU-1", "bus_id": "0000:02:00.0", "device_files": []}]
    request = {**state["request"], "devices": devices, "supervisor": "screen"}
    layout.write_json(file, {**state, "request": request})
    seen = services.service(str(tmp_path), "tiny", proc.processes())["instances"]
    assert [(i["devices"], i["supervisor"]) for i in seen] == [([], ""), (devices, "screen")]


@pytest.mark.parametrize("earlier", [False, True], ids=["one instance", "one that was two before"])
def test_an_accepted_service_stays_accepted(tmp_path, healthy_port, earlier):
    # After `replicas: 2 -> 1` the folder of instance 1 stays behind; it belongs to nothing that is wanted.
    me = proc.read(os.getpid())
    started(tmp_path, 0, healthy_port, me.pid, me.start)
    if earlier:
        started(tmp_path, 1, healthy_port, me.pid, me.start - 1)
    accepted = [{"index": 0, "leader": {"pid": me.pid, "start": me.start}, "digest": "d0"}]
    layout.write_json(tmp_path / "services/tiny/accepted.json", {"instances": accepted})
    assert services.service(str(tmp_path), "tiny", proc.processes())["accepted"] is True


def test_an_acceptance_of_other_processes_counts_nothing(tmp_path, healthy_port):
    me = proc.read(os.getpid())
    started(tmp_path, 0, healthy_port, me.pid, me.start)
    accepted = [{"index": 0, "leader": {"pid": me.pid, "start": me.start - 1}, "digest": "d0"}]
    layout.write_json(tmp_path / "services/tiny/accepted.json", {"instances": accepted})
    assert services.service(str(tmp_path), "tiny", proc.processes())["accepted"] is False


def test_the_state_digest_changes_with_every_start_and_end(tmp_path):
    digests = [services.state_digest(str(tmp_path))]
    started(tmp_path, 0, 8000, 10, 100)
    digests.append(services.state_digest(str(tmp_path)))
    file = layout.instance_dir(str(tmp_path), "tiny", 0) / "run/state.json"
    state = layout.read_json(file)
    layout.write_json(file, {**state, "keeper": {"pid": 10, "start": 101}})
    digests.append(services.state_digest(str(tmp_path)))
    layout.write_json(file, {**state, "keeper": {"pid": 10, "start": 101}, "ended": {"code": 0}})
    digests.append(services.state_digest(str(tmp_path)))
    assert len(set(digests)) == 4
    assert services.state_digest(str(tmp_path)) == digests[-1]


def test_what_deploys_have_left_is_looked_at_only_when_asked_for(tmp_path):
    (tmp_path / "services/one/instance-0").mkdir(parents=True)
    assert "deployed" not in host.look(host.Request(str(tmp_path)))
    seen = host.look(host.Request(str(tmp_path), deployed=True))
    assert set(seen) == {*worlds.survey(), "deployed"}
    assert list(seen["deployed"]) == ["one"]
    assert json.loads(json.dumps(seen["deployed"])) == seen["deployed"]
