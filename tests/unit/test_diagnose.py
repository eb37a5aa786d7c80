"""The diagnostic window: who may open it, what it says, and what it shows."""

from __future__ import annotations

import itertools
import json
import os

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import diagnose as judge
from ansible_collections.modelyard.core.plugins.module_utils.judge import diagnose_text, json_schema
from ansible_collections.modelyard.core.plugins.module_utils.plan import diagnose
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.survey import diagnose as window
from hypothesis import given
from hypothesis import strategies as st
from unit.check_cases import IDLE

HOSTS = {"server1": {"qwen": [0], "minicpm": [0, 1, 2]}, "server2": None}
GOOD = {"answer": "Paris", "count": 1, "kind": "place"}
FITS = json.dumps(GOOD)
RPC = "TimeoutError: RPC call to sample_tokens timed out."


def answer(content=FITS, status=200, error="", seconds=0.2, body=None):
    said = body if body is not None else {"choices": [{"message": {"content": content}}]}
    return {"status": status, "error": error, "seconds": seconds, "body": said if status else None}


def sample(at, running=1.0, tokens=10.0, state="S", used=30000, **more):
    counters = {"running": running, "waiting": 0.0, "generation_tokens": tokens, **more}
    process = {"pid": 9, "comm": "VLLM::Worker_TP", "state": state, "waits_in": "", "cpu_s": 1.0}
    cards = [{"index": 0, "memory_used_mib": used, "utilization_pct": 90, "health": "ok"}]
    return {"at": at, "counters": counters, "processes": [process], "cards": cards}


def seen(*answers, **changes):
    usual = {"answers": list(answers) or [answer()], "samples": [sample(0.0), sample(1.0, 0.0, 20.0)], "log": "", "fatal": []}
    return {**usual, "alive": True, "health": 200, "kernel": [], "kernel_why": "", "seconds": 1.0, **changes}


LATE = answer(status=0, error="timeout", seconds=120.0)
STILL = [sample(24.0 * at, 2.0, 10.0, "R") for at in range(6)]
MOVING = [sample(24.0 * at, 2.0, 10.0 * at) for at in range(6)]
#: Looks are closer together at the beginning; what counts is time.
STOPPED = [sample(at, 2.0, min(30.0, 10.0 * at)) for at in (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 50.0, 70.0, 119.0)]
CASES = [
    (seen(), ""),
    (seen(fatal=[RPC]), judge.RPC),
    (seen(fatal=["EngineDeadError"]), judge.DEAD),
    (seen(fatal=["No available shared memory broadcast block found in 60 seconds.", RPC], alive=False), judge.RPC),
    (seen(alive=False), judge.DIED),
    (seen(answer(), LATE, samples=STILL), judge.HANGS),
    (seen(answer(), LATE, samples=STOPPED), judge.HANGS),
    (seen(answer(), LATE, samples=MOVING), judge.SLOW),
    (seen(answer(), LATE, samples=[{**sample(0.0), "counters": None}] * 2), judge.HANGS),
    (seen(answer(status=0, error="refused")), judge.BROKEN),
    (seen(answer(status=500, body={"error": {"message": "EngineCore encountered an issue."}})), judge.BROKEN),
    (seen(answer(status=400, body={"error": {"message": "grammar"}})), judge.REFUSED),
    (seen(answer(), answer("{}")), judge.WRONG),
    (seen(answer(), answer('{"answer": "Pa')), judge.WRONG),
    (seen(answer(), answer(json.dumps({**GOOD, "more": 1}))), judge.WRONG),
    (seen(answer(body={"choices": []})), judge.WRONG),
    (seen(answer(body="text")), judge.WRONG),
    (seen(health=503), judge.DEAD),
]
LEFT = finding("PF-MEMORY-HELD", "server1:card 0", "30004 MiB are held", "ask")
OTHER = finding("PF-LIMITS", "server1", "open files", "raise")


@pytest.mark.parametrize(("found", "fault"), CASES, ids=[f"{number}-{case[1] or 'well'}" for number, case in enumerate(CASES)])
def test_what_went_wrong_is_told_apart(found, fault):
    said = judge.fault(found)
    assert said.id == fault
    assert bool(said.words) is bool(fault)


def test_what_hangs_is_told_with_its_processes():
    words = judge.fault(seen(answer(), LATE, samples=STILL)).words
    assert words == (
        "1 of 2 request(s) had no answer within 120 s; no token comes, 2 run by its count of the last finished step; "
        "its processes: VLLM::Worker_TP R"
    )


@pytest.mark.parametrize(
    ("alone", "together", "slots", "findings", "id", "words", "next_"),
    [
        (seen(), seen(answer(), answer()), None, [], "both_answered", "nothing failed", "rarer than one window shows"),
        (seen(), seen(answer(), answer()), 1, [], "both_answered", "concurrent decoding was not tested", "rarer"),
        (seen(), seen(answer(), answer()), 4, [LEFT], "both_answered", "nothing failed", "the nearer cause"),
        (seen(), seen(fatal=[RPC]), 4, [], "together", "concurrent structured decoding", "engine.max_num_seqs: 1"),
        (seen(), seen(alive=False), None, [], "together", "concurrent structured decoding", "nothing was restarted"),
        (seen(), seen(answer(), LATE, samples=STILL), 4, [], "together", "two at once are not", "another backend"),
        (seen(), seen(answer(), answer("{}")), 4, [], "together", "concurrent structured decoding", "another backend"),
        (seen(), seen(fatal=[RPC]), 1, [], "together", "not concurrent decoding: with max_num_seqs 1", "async_scheduling: false"),
        (seen(), seen(answer(), LATE, samples=MOVING), 4, [], "slow", "not decided", "diagnose_limit_s"),
        (seen(), seen(answer(), answer(status=429, body="queue")), 4, [], "refused", "not decided", "in front of it"),
        (seen(LATE, samples=STILL), None, 4, [LEFT], "leftovers", "already one request alone fails", "recover.yml"),
        (seen(fatal=[RPC]), None, 4, [OTHER], "alone", "not concurrent decoding", "from its first error"),
        (seen(answer("{}")), None, 4, [LEFT], "alone", "already one request alone fails", "structured_outputs_config"),
        (seen(answer(status=400, body="json_schema")), None, 4, [], "request", "nothing was tested", "nothing needs a restart"),
        (seen(LATE, samples=MOVING), None, 4, [], "slow", "already one request", "diagnose_limit_s"),
    ],
)
def test_the_verdict_follows_from_one_alone_and_two_together(alone, together, slots, findings, id, words, next_):
    said = judge.verdict(alone, together, slots, findings)
    assert said["id"] == id
    assert words in said["what"]
    assert any(next_ in line for line in said["do"])
    assert said["why"][0].startswith("one alone: ")
    assert (LEFT["what"] in " ".join(said["why"])) is (LEFT in findings and id in ("leftovers", "both_answered"))
    assert all("restart it" not in line for line in said["do"])


def test_requests_of_others_make_it_less_sure_and_the_kernel_is_shown():
    busy = seen(answer(), LATE, samples=[sample(0.0, 5.0), *STILL], kernel=["NVRM: Xid 31"])
    why = judge.verdict(seen(), busy, 4, [])["why"]
    assert "requests of others came in meanwhile (together), so this is less sure" in why
    assert "the kernel's log: NVRM: Xid 31" in why


FAULTS = [found for found, _ in CASES]


@given(st.sampled_from(FAULTS), st.none() | st.sampled_from(FAULTS), st.sampled_from([None, 1, 4]), st.booleans())
def test_every_pair_has_a_verdict_with_reasons_and_a_next_step(alone, together, slots, left):
    together = None if judge.fault(alone).id else together or seen(answer(), answer())
    said = judge.verdict(alone, together, slots, [LEFT] if left else [])
    assert said["what"] and said["why"] and said["do"]
    if said["id"] == "both_answered":
        assert not judge.fault(alone).id
        assert not judge.fault(together).id
    json.dumps(said)
    assert "verdict: " in diagnose_text.report("qwen/0", said, {"alone": alone, "together": together})


def test_the_report_shows_each_request_and_what_was_watched():
    together = seen(answer(seconds=0.31), LATE, samples=[sample(0.0), sample(1.0, 2.0, 14.0, "R", used=30500)])
    told = diagnose_text.report("qwen/0", judge.verdict(seen(), together, 4, []), {"alone": seen(), "together": together}, [0])
    lines = told.splitlines()
    assert lines[0] == "Diagnostic window of qwen/0"
    assert lines[2].split() == ["alone", "200", "0.20", "1", "10", "1", "S", "30000"]
    assert lines[3].split() == [
        *("together", "200,", "timeout", "0.31,", "120.00", "2", "4", "1", "R", "30000", "to", "30500"),
    ]
    alone = diagnose_text.report("q", judge.verdict(seen(LATE), None, 4, []), {"alone": seen(LATE), "together": None})
    assert "together  " not in alone


def test_the_request_is_short_and_its_schema_is_one_that_nothing_empty_fits():
    body = judge.body("tiny")
    schema = body["response_format"]["json_schema"]["schema"]
    assert json_schema.errors(GOOD, schema) == []
    assert json_schema.errors({}, schema)
    assert body["max_tokens"] <= 200


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is not given: two JSON Schema requests at once"),
        ("qwen", "does not name one host and one service"),
        ("server1:qwen,server1:minicpm", "does not name one host and one service"),
        ("other:qwen", "other is no host of this run; there are: server1, server2"),
        ("server2:qwen", "what runs on server2 is not known"),
        ("server1:gemma", "gemma is no service of server1; there are: qwen, minicpm"),
        ("server1:minicpm", "minicpm has 3 instances (0, 1, 2)"),
        ("server1:minicpm/3", "minicpm has no instance 3; there are: 0, 1, 2"),
    ],
)
def test_a_word_that_does_not_name_one_instance_is_refused(text, what):
    (found,) = diagnose.confirmation(text, HOSTS)
    assert found["id"] == "DG-CONFIRM"
    assert what in found["what"]
    assert "Nothing was asked" in found["do"]


@pytest.mark.parametrize(
    ("text", "target"), [("server1:qwen", ("server1", "qwen", 0)), ("server1:minicpm/2", ("server1", "minicpm", 2))]
)
def test_a_sound_word_names_one_instance(text, target):
    assert diagnose.confirmation(text, HOSTS) == []
    assert diagnose.target(text, HOSTS) == target


RUNNING = {"running": 0.0, "waiting": 0.0, "generation_tokens": 5.0}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"started": False, "alive": False}, "it was never started here"),
        ({"alive": False}, "the engine has ended (log: /l)"),
        ({"health": 503}, "does not answer well on /health (503)"),
        ({"health": 0}, "does not answer well on /health (no answer)"),
        (
            {"fatal": ["RPC call to sample_tokens timed out."]},
            "its log has become fatal before the window: RPC call to sample_tokens",
        ),
        ({"counters": [None, RUNNING]}, "how busy the engine is cannot be seen"),
        ({"counters": [{}, {}]}, "how busy the engine is cannot be seen"),
        ({"counters": [RUNNING, {**RUNNING, "running": 1.0}]}, "the service is busy: 1 request(s)"),
        ({"counters": [{**RUNNING, "waiting": 3.0}, RUNNING]}, "the service is busy: 3 request(s)"),
        ({"counters": [RUNNING, {**RUNNING, "generation_tokens": 9.0}]}, "the service was busy a moment ago: tokens came"),
    ],
)
def test_only_an_idle_engine_that_answers_is_diagnosed(changes, what):
    (found,) = diagnose.readiness({**IDLE, **changes}, "server1:qwen/0")
    assert found["id"] == "DG-STATE"
    assert what.removeprefix("it was ") in found["what"]


def test_an_idle_engine_may_be_diagnosed():
    assert diagnose.readiness({**IDLE, "counters": [RUNNING, RUNNING]}, "a") == []


@given(st.text(alphabet="ab:/,0 1-", max_size=12))
def test_any_word_is_refused_or_names_an_instance(text):
    hosts = {"a": {"b": [0, 1], "a": [0]}, "b": {}}
    if not diagnose.confirmation(text, hosts):
        host, service, index = diagnose.target(text, hosts)
        assert index in hosts[host][service]


def test_all_findings_that_count_as_left_behind_exist():
    for id in itertools.chain(judge.LEFT_BEHIND):
        finding(id, "a", "b", "c")


def test_a_process_is_seen_with_its_state_and_its_time_and_one_that_is_gone_is_said_to_be(tmp_path):
    mine = window.process(os.getpid())
    assert (mine["pid"], mine["state"]) == (os.getpid(), "R")
    assert mine["cpu_s"] > 0
    assert window.process(2**22 + 1) == {"pid": 2**22 + 1, "comm": "", "state": "gone", "waits_in": "", "cpu_s": None}


def test_an_instance_that_was_never_started_is_looked_at_without_harm(tmp_path):
    watched = window.Watched(str(tmp_path), "qwen", 0, {"running": "vllm:num_requests_running"}, {}, "/")
    seen_ = window.look(watched)
    assert (seen_["started"], seen_["alive"], watched.pids(), watched.cards()) == (False, False, [], [])
    (found,) = diagnose.readiness(seen_, "server1:qwen/0")
    assert "never started here" in found["what"]
