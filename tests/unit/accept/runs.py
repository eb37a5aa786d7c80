"""Runs and events that unit tests are made of."""

from __future__ import annotations

from modelyard.accept import answer

PASS = {"id": "health", "instance": 0, "passed": True, "seconds": 0.1, "detail": "200"}
FAIL = {"id": "schema", "instance": 1, "passed": False, "seconds": 0.2, "detail": "{} does not fit", "next": "look at the log"}
BUSY = {"id": "chat", "instance": 0, "passed": False, "verdict": "busy", "seconds": 0.0, "detail": "32 running"}
SKIPPED = {"id": "memory", "instance": 0, "passed": False, "verdict": "skipped", "seconds": 0.0, "detail": "no cards"}


def service(*steps, name="one", **more):
    seen = [answer.step(one) for one in steps]
    kept = {"name": name, "answer": answer.of_service(seen), "steps": seen, "evidence": "", "manifest": None, "cards": []}
    return {**kept, **more}


def host(*services, problem="", kind=""):
    answers = [one["answer"] for one in services] + ([kind] if kind else [])
    return {"answer": answer.worst(answers, answer.ACCEPTED), "problem": problem, "services": list(services)}


def run(hosts, id="20261130T114200Z", began=1_796_000_000.0, **more):
    base = {
        "schema": 1,
        "id": id,
        "began": began,
        "ended": began + 5,
        "inventory": "inventory/lab",
        "limit": "",
        "trigger": "timer",
    }
    artifacts = {"json": f"/state/runs/{id}.json", "junit": "", "html": ""}
    base.update(answer=answer.of_run(hosts), before=None, changed_since=id, words=[], hosts=hosts, artifacts=artifacts)
    return {**base, **more}


def event(kind, host="server1", action="", **said):
    return {"event": kind, "pid": 4711, "event_data": {"host": host, "task_action": action, "task": "a task", "res": said}}
