"""What happened to requests, as an admin asks it: the playbook over logs that the gateway's own writer has written."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from harness import Site
from modelyard_gateway.result_log import ResultLog, entry

TOO_LONG = json.dumps(
    {"error": {"message": "This model's maximum context length is 4096 tokens. However, your request has 6000"}}
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("requests"), [])
    log = ResultLog(str(made.home / "services/qwen.gateway/instance-0/logs/results.jsonl"), 3000, 3)
    now = time.time()
    for number in range(8):
        log.write(
            entry(now - 8 + number, id=f"ok-{number}", user="chat", backend=f"qwen/{number % 2}", status=200, prompt_tokens=40)
        )
    log.write(entry(now - 7200, id="old", user="batch", backend="qwen/0", status=500, error="Internal Server Error"))
    log.write(entry(now, id="long", user="batch", backend="qwen/1", status=400, prompt_tokens=None, error=TOO_LONG))
    assert log.close(20)
    return made


def test_failures_are_grouped_and_compared(site: Site) -> None:
    path = site.folder / "requests.json"
    run = site.play("requests", requests_json=str(path), requests_since_h=1)
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    assert "400 context: the prompt is too long: 6000 tokens, max_model_len 4096" in run.output
    assert "all 1 failure(s) are of backend qwen/1: 1 of its 5 failed, and 0 of 4 of the others" in run.output
    (log,) = json.loads(path.read_text(encoding="utf-8"))["hosts"]["host-a"]["logs"]
    assert (log["service"], log["lines"], log["failed"]) == ("qwen", 9, 1)


def test_what_happened_to_one_request_is_told(site: Site) -> None:
    run = site.play("requests", requests_request="old", requests_service="qwen")
    assert run.rc == 0, run.output[-4000:]
    assert "request old, of user batch" in run.output
    assert "failed: the engine failed at this request" in run.output
    assert "request long" not in run.output


def test_a_misspelt_question_is_refused(site: Site) -> None:
    run = site.play("requests", requests_usr="batch")
    assert run.rc != 0
    assert "requests_user" in run.output


def test_a_home_without_logs_is_told_so(tmp_path: Path) -> None:
    run = Site(tmp_path, []).play("requests")
    assert run.rc != 0
    assert "no service has a result log" in run.output
