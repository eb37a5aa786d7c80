"""Where a service's gateway lives, and what the scripts say of it."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.modelyard.core.plugins.action import service_roll
from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import gateway
from unit.check_cases import acted

BACKEND = {"index": 0, "name": "qwen/0", "host": "127.0.0.1", "port": 8002}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (json.dumps({"kind": "nginx", "backends": [BACKEND]}), True),
        (json.dumps({"kind": "nginx", "backends": [{**BACKEND, "port": "8002"}]}), False),
        (json.dumps({"kind": "nginx", "backends": [{"name": "qwen/0"}]}), False),
        (json.dumps({"kind": "nginx"}), False),
        ("{", False),
    ],
)
def test_a_spec_is_used_whole_or_not_at_all(tmp_path, text, whole):
    folder = place.folder(str(tmp_path), "qwen")
    folder.mkdir(parents=True)
    assert folder == tmp_path / "services/qwen.gateway/instance-0"
    assert place.spec(str(tmp_path), "qwen") is None
    (folder / place.SPEC_FILE).write_text(text, encoding="utf-8")
    assert (place.spec(str(tmp_path), "qwen") is not None) is whole
    assert not place.runs(str(tmp_path), "qwen")


class Fake:
    """A gateway whose instances empty as `counts` say, one entry for each look."""

    def __init__(self, monkeypatch, counts):
        self.counts, self.now, self.said, self.told = list(counts), 0.0, [], []
        self.out = set()
        names = [{**BACKEND, "index": i, "name": f"qwen/{i}"} for i in range(3)]
        monkeypatch.setattr(doors.place, "runs", lambda home, service: True)
        monkeypatch.setattr(doors.place, "spec", lambda home, service: {"kind": "nginx", "backends": names})
        monkeypatch.setattr(doors.control, "status", self.status)
        monkeypatch.setattr(doors.control, "drain", lambda folder, spec, name: self.told.append(name))
        monkeypatch.setattr(doors.control, "undrain", lambda folder, spec, name: self.told.append(f"in {name}"))
        monkeypatch.setattr(doors.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(doors.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.now += seconds

    def status(self, folder, spec):
        counts = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        if isinstance(counts, Exception):
            raise counts
        names = [f"qwen/{i}" for i in range(len(counts))]
        return {"backends": [{"name": name, "draining": name in self.out, "in_flight": n} for name, n in zip(names, counts)]}


def test_all_are_taken_out_before_any_is_waited_for(monkeypatch):
    fake = Fake(monkeypatch, [(2, 0, 9), (2, 0, 9), (1, 0, 9), (1, 0, 9), (0, 0, 9)])
    doors.leave("/h", "qwen", [0, 1], 30, fake.said.append)
    assert fake.told == ["qwen/0", "qwen/1"]
    assert fake.said == [
        "gateway: qwen/0 takes no new requests, 2 in flight",
        "gateway: qwen/1 takes no new requests, 0 in flight",
        "gateway: qwen/0 empty after 1 s",
    ]


def test_the_wait_has_an_end(monkeypatch):
    fake = Fake(monkeypatch, [(2, 0, 0)])
    doors.leave("/h", "qwen", [0], 4, fake.said.append)
    assert fake.said[-1] == "gateway: qwen/0 still 2 in flight after 4 s: going on"
    assert fake.now < 5


@pytest.mark.parametrize(
    ("answer", "said"),
    [(GatewayError("no answer"), "gateway: no answer; stopping all the same"), (KeyError("draining"), "KeyError: 'draining'")],
)
def test_a_gateway_that_answers_otherwise_stops_no_stop(monkeypatch, answer, said):
    fake = Fake(monkeypatch, [answer])
    doors.leave("/h", "qwen", [0], 4, fake.said.append)
    assert said in fake.said[0]
    assert fake.said[0].endswith("; stopping all the same")


@pytest.mark.parametrize(
    ("out_before", "ended", "told", "said"),
    [
        (False, True, ["qwen/0", "in qwen/0"], "gateway: qwen/0 gets requests again as soon as it answers"),
        (False, False, ["qwen/0"], "gateway: qwen/0 has not ended and stays out; a deploy that proves it takes it in"),
        (True, True, [], "gateway: qwen/0 takes no new requests, 0 in flight"),
    ],
)
def test_only_who_took_an_instance_out_takes_it_in_and_only_when_it_has_ended(monkeypatch, out_before, ended, told, said):
    fake = Fake(monkeypatch, [(0, 0, 0)])
    fake.out = {"qwen/0"} if out_before else set()
    with doors.away("/h", "qwen", 0, 4, lambda: ended, fake.said.append):
        fake.out = {"qwen/0"}
    assert (fake.told, fake.said[-1]) == (told, said)


@pytest.mark.parametrize("wrong", [GatewayError("no answer"), KeyError("draining")])
def test_a_gateway_that_fails_meanwhile_is_said_and_stops_no_stop(monkeypatch, wrong):
    fake = Fake(monkeypatch, [(0, 0, 0)])
    with doors.away("/h", "qwen", 0, 4, lambda: True, fake.said.append):
        fake.counts = [wrong]
    assert fake.said[-1] == f"gateway: qwen/0 stays out, a deploy takes it in: {type(wrong).__name__}: {wrong}"


def test_an_instance_that_the_gateway_does_not_know_is_not_waited_for(monkeypatch):
    fake = Fake(monkeypatch, [(0, 0, 0)])
    doors.leave("/h", "qwen", [7], 30, fake.said.append)
    assert (fake.said, fake.told, doors.would_leave("/h", "qwen", [7], 30)) == ([], [], [])
    assert "qwen/0" in doors.would_leave("/h", "qwen", [0, 7], 30)[0]


def test_the_line_of_the_gateway():
    found = {"address": "http://0.0.0.0:8000", "kind": "modelyard", "state": "ready", "problem": "", "unknown": []}
    found.update(up=["q/0", "q/1"], down=["q/2"], out=["q/3"])
    assert gateway.line(found) == "gateway: http://0.0.0.0:8000 modelyard ready; 2 of 4 instance(s) up; down: q/2; out: q/3"
    silent = {**found, "up": [], "down": [], "out": [], "state": "not answering", "problem": "refused"}
    assert gateway.line(silent) == "gateway: http://0.0.0.0:8000 modelyard not answering; refused"
    nginx = {**found, "up": [], "down": [], "unknown": ["q/0", "q/1", "q/2"]}
    assert gateway.line(nginx).endswith("ready; 3 instance(s), it does not say how they are; out: q/3")


@pytest.mark.parametrize(
    ("service", "doors_said", "said"),
    [
        ({"gateway": {"kind": "nginx"}}, [True, False], " The gateway sends no requests to q/0 until a deploy has proven it."),
        ({"gateway": {"kind": "nginx"}}, [False, False], ""),
        ({"gateway": {"kind": "nginx"}}, None, " And it is not known whom the gateway sends requests to: it is mute."),
        ({}, [True, False], ""),
    ],
)
def test_a_restart_that_fails_says_who_stays_out(monkeypatch, service, doors_said, said):
    def answer(action, name, args, variables):
        if name == "guarded_stop":
            raise AnsibleActionFail("it hangs")
        if doors_said is None:
            raise AnsibleActionFail("it is mute")
        return {"backends": [{"name": f"q/{i}", "draining": out, "in_flight": 0} for i, out in enumerate(doors_said)]}

    monkeypatch.setattr(service_roll.call, "module", answer)
    batch = [{"name": "q/0", "index": 0, "digest": "d", "texts": []}]
    args = {
        "home": "/h",
        "runtimes_dir": "",
        "service": {"name": "q", **service},
        "batches": [batch],
        "timeout_s": 1,
        "grace_s": 1,
    }
    result = acted(service_roll, args, {}).run(None, {})
    assert result["msg"] == f"the restart of q/0 failed: it hangs.{said}"
