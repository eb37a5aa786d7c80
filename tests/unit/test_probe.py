"""What the ladder gathers, from a real server and real files."""

from __future__ import annotations

import http.server
import json
import os
import threading
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import after_step, probe, services, walk
from ansible_collections.modelyard.core.plugins.module_utils.survey import http as http_client
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
    step = acceptance.ladder(worlds.service(), ["serial"])[0]
    asked = step.ask(worlds.service(), {"index": 0})
    seen = probe.ask(str(tmp_path), {**worlds.service(), "metrics": {}}, state(engine.server_address[1]), asked, "")
    assert engine.asked == 3
    assert [a["status"] for a in seen["answers"]] == [200, 200, 500]
    assert step.judge(worlds.service(), {"index": 0}, seen).complaint.startswith("request 3: HTTP 500: ")


def started(home, index, digest="d"):
    folder = layout.instance_dir(str(home), "tiny", index)
    (folder / "run").mkdir(parents=True, exist_ok=True)
    written = state()
    written["request"]["digest"] = digest
    layout.write_json(folder / "run/state.json", written)


TINY = worlds.service(name="tiny")


def steps(index, failed="", ids=None, word="fail"):
    whole = ids or [step.id for step in acceptance.ladder(TINY)]
    return [{"id": id, "instance": index, "passed": id != failed, "verdict": word if id == failed else "pass"} for id in whole]


def record(home, *walked):
    asked = sorted({step["instance"] for step in walked})
    wanted = {"passed": all(step["passed"] for step in walked), "depth": "full", "asked": asked, "steps": list(walked)}
    written, path, problems = probe.record(str(home), TINY, wanted)
    assert problems == []
    assert layout.read_json(Path(path)) == written
    return path


def accepted(home):
    return [(one["index"], one["digest"]) for one in services.accepted(str(home), "tiny")]


def test_a_whole_and_passed_ladder_makes_an_instance_accepted(tmp_path):
    started(tmp_path, 0)
    result = record(tmp_path, *steps(0))
    (proof,) = services.accepted(str(tmp_path), "tiny")
    assert layout.read_json(Path(result))["passed"] is True
    assert proof == {"index": 0, "leader": state()["leader"], "digest": "d", "at": proof["at"], "result": result}


def test_a_part_of_the_ladder_makes_nothing_accepted_and_takes_nothing_away(tmp_path):
    started(tmp_path, 0)
    record(tmp_path, *steps(0, ids=["health", "schema"]))
    assert accepted(tmp_path) == []
    record(tmp_path, *steps(0))
    record(tmp_path, *steps(0, ids=["health"]))
    assert accepted(tmp_path) == [(0, "d")]


def test_a_failed_step_takes_the_acceptance_of_its_instance_and_of_no_other(tmp_path):
    started(tmp_path, 0)
    started(tmp_path, 1)
    record(tmp_path, *steps(0), *steps(1))
    assert accepted(tmp_path) == [(0, "d"), (1, "d")]
    record(tmp_path, *steps(1, failed="schema", ids=["schema"]))
    assert accepted(tmp_path) == [(0, "d")]
    record(tmp_path, *steps(0, failed="process", ids=["process"]))
    assert not (tmp_path / "services/tiny/accepted.json").exists()


def test_an_instance_that_was_started_anew_is_accepted_alone(tmp_path):
    started(tmp_path, 0)
    started(tmp_path, 1)
    record(tmp_path, *steps(0), *steps(1))
    started(tmp_path, 1, digest="other")
    record(tmp_path, *steps(1))
    assert accepted(tmp_path) == [(0, "d"), (1, "other")]


@pytest.mark.parametrize("text", ["", "[]", '{"instances": 3}', '{"instances": [3, {}]}', '{"at": 1.0}'])
def test_an_unreadable_record_of_acceptances_counts_nothing_and_is_written_anew(tmp_path, text):
    started(tmp_path, 0)
    (tmp_path / "services/tiny/accepted.json").write_text(text)
    assert accepted(tmp_path) == []
    record(tmp_path, *steps(0))
    assert accepted(tmp_path) == [(0, "d")]


def test_two_results_of_one_second_do_not_overwrite_each_other(tmp_path):
    (tmp_path / "services/tiny").mkdir(parents=True)
    result = {"passed": False, "depth": "full", "asked": [], "steps": []}
    results = {probe.record(str(tmp_path), TINY, result)[1] for _ in range(3)}
    assert len(results) == 3


def test_the_result_has_the_fields_that_programs_read(tmp_path):
    started(tmp_path, 0)
    written = layout.read_json(Path(record(tmp_path, *steps(0))))
    assert {key: written[key] for key in ("schema", "service", "passed", "depth", "asked")} == {
        **{"schema": 1, "service": "tiny", "passed": True, "depth": "full", "asked": [0]},
    }
    assert written["at"] > 1.7e9


def test_a_step_that_could_not_be_judged_takes_no_acceptance_away(tmp_path):
    started(tmp_path, 0)
    record(tmp_path, *steps(0))
    record(tmp_path, *steps(0, failed="chat", ids=["health", "chat"], word="busy"))
    assert accepted(tmp_path) == [(0, "d")]


def test_old_results_are_removed_but_not_the_one_an_acceptance_rests_on(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "RESULTS_KEPT", 3)
    started(tmp_path, 0)
    record(tmp_path, *steps(0))
    for number in range(6):
        (tmp_path / f"services/tiny/acceptance/2020010{number}T000000Z.json").write_text("{}")
    accepted_file = tmp_path / "services/tiny/accepted.json"
    proof = layout.read_json(accepted_file)
    proof["instances"][0]["result"] = str(tmp_path / "services/tiny/acceptance/20200101T000000Z.json")
    layout.write_json(accepted_file, proof)
    record(tmp_path, *steps(0, ids=["health"]))
    left = sorted(path.name for path in (tmp_path / "services/tiny/acceptance").iterdir())
    assert left[:2] == ["20200101T000000Z.json", "20200105T000000Z.json"]
    assert len(left) == 4


def test_a_full_disk_makes_nothing_accepted_and_is_said(tmp_path, monkeypatch):
    started(tmp_path, 0)
    record(tmp_path, *steps(0))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(probe.layout, "write_json", full)
    wanted = {"passed": False, "depth": "full", "asked": [0], "steps": steps(0, failed="chat")}
    _, _, problems = probe.record(str(tmp_path), TINY, wanted)
    assert "No space left on device" in problems[0]
    assert accepted(tmp_path) == []


def test_on_a_disk_that_became_read_only_the_verdict_is_given_and_what_stands_there_is_said(tmp_path, monkeypatch):
    started(tmp_path, 0)
    record(tmp_path, *steps(0))

    def read_only(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(probe.layout, "write_json", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    wanted = {"passed": False, "depth": "full", "asked": [0], "steps": steps(0, failed="chat")}
    result, _, problems = probe.record(str(tmp_path), TINY, wanted)
    assert result["passed"] is False
    assert problems[0] == "the result of the acceptance: [Errno 30] Read-only file system"
    assert problems[1].startswith(
        f"what is accepted now, and {tmp_path}/services/tiny/accepted.json cannot be removed either: it says"
    )
    assert accepted(tmp_path) == [(0, "d")], "so it is said"


def test_only_what_was_logged_since_is_judged(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("EngineDeadError of an earlier time\nnew line\n")
    assert after_step.log_since(state(log=str(log)), 35) == "new line\n"
    assert after_step.log_since(state(log=str(tmp_path / "absent")), 0) == ""


def test_a_step_that_cannot_be_judged_is_no_pass(tmp_path, engine):
    # A state without a port number to ask: whatever goes wrong in a step, the ladder ends there, failed.
    folder = layout.instance_dir(str(tmp_path), "tiny-qwen3", 0)
    (folder / "run").mkdir(parents=True)
    broken = state(engine.server_address[1])
    broken["request"]["port"] = "no number"
    layout.write_json(folder / "run/state.json", broken)
    plan = {**worlds.service(), "instances": [{"index": 0, "port": 1}]}
    steps = acceptance.ladder(plan, ["health", "models"])
    walked = walk.Walk(str(tmp_path), plan, steps, False).run()
    assert [(entry["id"], entry["passed"]) for entry in walked] == [("health", False)]


def test_an_answer_that_no_parser_can_nest_is_text(engine):
    engine.RequestHandlerClass.do_GET = deep
    answer = http_client.request(("127.0.0.1", engine.server_address[1]), "GET", "/v1/models")
    assert (answer["status"], answer["body"][:3]) == (200, "[[[")


def deep(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"[" * 200_000)
