"""What the ladder gathers, from a real server and real files."""

from __future__ import annotations

import http.server
import json
import os
import threading

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import http as http_client
from ansible_collections.modelyard.core.plugins.module_utils.survey import probe
from unit import worlds


class Engine(http.server.BaseHTTPRequestHandler):
    """Answers chats, but for the third."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        status = 500 if self.server.asked == 3 else 200
        content = json.dumps({"choices": [{"message": {"content": "two"}}], "usage": {"completion_tokens": 1}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = None

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.asked = 0
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def state(port=0, log="/nonexistent"):
    me = {"pid": os.getpid(), "start": proc.read(os.getpid()).start}
    return {
        "keeper": me,
        "leader": me,
        "log": log,
        "started_at": 0,
        "ended": None,
        "request": {"host": "127.0.0.1", "port": port, "digest": "d", "launch": {}},
    }


def test_serial_requests_stop_at_the_first_that_fails(engine, tmp_path):
    step = acceptance.ladder(["serial"])[0]
    asked = step.ask(worlds.service(), {"index": 0})
    seen = probe.ask(str(tmp_path), "tiny-qwen3", state(engine.server_address[1]), asked, "", 5.0)
    assert engine.asked == 3
    assert [a["status"] for a in seen["answers"]] == [200, 200, 500]
    complaint, _ = step.judge(worlds.service(), {"index": 0}, seen)
    assert complaint.startswith("request 3: HTTP 500.")


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ({"passed": True, "complete": True}, True),
        ({"passed": True, "complete": False}, False),
        ({"passed": False, "complete": True}, False),
    ],
)
def test_only_a_whole_and_passed_ladder_makes_a_service_accepted(tmp_path, wanted, kept):
    folder = layout.instance_dir(str(tmp_path), "tiny", 0)
    (folder / "run").mkdir(parents=True)
    layout.write_json(folder / "run/state.json", state())
    result = probe.record(str(tmp_path), "tiny", {**wanted, "asked": [0], "steps": []})
    assert layout.read_json(tmp_path / result)["passed"] is wanted["passed"]
    accepted = layout.read_json(tmp_path / "services/tiny/accepted.json")
    assert (accepted is not None) is kept
    if kept:
        assert accepted["instances"] == [{"index": 0, "leader": state()["leader"], "digest": "d"}]


def test_a_failed_ladder_takes_an_earlier_acceptance_back_and_a_part_of_it_does_not(tmp_path):
    base = tmp_path / "services/tiny"
    base.mkdir(parents=True)
    layout.write_json(base / "accepted.json", {"instances": []})
    probe.record(str(tmp_path), "tiny", {"passed": True, "complete": False, "steps": []})
    assert (base / "accepted.json").exists()
    probe.record(str(tmp_path), "tiny", {"passed": False, "complete": False, "steps": []})
    assert not (base / "accepted.json").exists()


def test_two_results_of_one_second_do_not_overwrite_each_other(tmp_path):
    (tmp_path / "services/tiny").mkdir(parents=True)
    result = {"passed": False, "complete": True, "steps": []}
    results = {probe.record(str(tmp_path), "tiny", result) for _ in range(3)}
    assert len(results) == 3


def test_only_what_was_logged_since_is_judged(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("EngineDeadError of an earlier time\nnew line\n")
    assert probe.log_since(state(log=str(log)), 35) == "new line\n"
    assert probe.log_since(state(log=str(tmp_path / "absent")), 0) == ""


def test_a_step_that_cannot_be_judged_is_no_pass(tmp_path, engine):
    # A state without a port number to ask: whatever goes wrong in a step, the ladder ends there, failed.
    folder = layout.instance_dir(str(tmp_path), "tiny-qwen3", 0)
    (folder / "run").mkdir(parents=True)
    broken = state(engine.server_address[1])
    broken["request"]["port"] = "no number"
    layout.write_json(folder / "run/state.json", broken)
    plan = {**worlds.service(), "instances": [{"index": 0, "port": 1}]}
    walked = probe.walk(str(tmp_path), plan, ["health", "models"])
    assert [(entry["id"], entry["passed"]) for entry in walked] == [("health", False)]


def test_an_answer_that_no_parser_can_nest_is_text(engine):
    engine.RequestHandlerClass.do_GET = deep
    answer = http_client.request(("127.0.0.1", engine.server_address[1]), "GET", "/v1/models")
    assert (answer["status"], answer["body"][:3]) == (200, "[[[")


def deep(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"[" * 200_000)
