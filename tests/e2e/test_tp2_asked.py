"""Questions to the service over two ranks: the context that prompts need, diagnostic windows, what is said of faults."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cases import always
from e2e_site import ENGINE, answers, diagnosed, figure, get
from e2e_site import TP2 as NAME
from footprint import WORKER, Instance
from harness import Site, until
from stream import Stream

pytestmark = pytest.mark.e2e
WORDS = "Say hello to the place of Paris. "
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": WORDS}]}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": "x" * 500}, {"role": "user", "content": WORDS * 40}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Grüße, 世界"}]}]}),
    ("/v1/completions", {"prompt": WORDS * 7}),
]
TOO_LONG = {"messages": [{"role": "user", "content": "zq" * 4000}]}


def fit(site: Site, lines: list[Any], **extra: Any) -> dict[str, Any]:
    """Ask for the context of some lines; the result of this host."""
    file, target = site.folder / "prompts.jsonl", site.folder / "fit.json"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run = site.play("context_fit", context_fit_file=str(file), context_fit_json=str(target), **extra)
    assert run.rc == 0, run.output[-4000:]
    result: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))["hosts"]["host-a"]
    return {**result, "output": run.output}


def test_prompts_are_counted_as_the_engine_counts_them_and_the_cache_is_as_its_log_says(
    first: str, site: Site, port: int, key: str
) -> None:
    counted = []
    for path, request in REQUESTS:
        status, reply = get(port, path, key, body={"model": "tiny", "max_tokens": 1, **request})
        assert status == 200, reply
        counted.append(reply["usage"]["prompt_tokens"])
    status, reply = get(port, "/v1/chat/completions", key, body={"model": "tiny", **TOO_LONG})
    assert status == 400, "the engine refuses what is said to be refused"
    found = fit(site, [{"max_tokens": 1, **request} for _, request in REQUESTS] + [TOO_LONG], context_fit_reserve=1)
    needs = {one["line"]: one["tokens"] for one in found["longest"]}
    assert [needs[line] - 1 for line in range(1, 5)] == counted
    assert (found["prompts"], found["refused"], found["max_model_len"]["today"]) == (5, 1, ENGINE["max_model_len"])
    assert found["max_model_len"]["deployed"] == ENGINE["max_model_len"]
    memory = found["memory"]
    assert memory["room_from"].startswith("the engine's log: KV cache size ")
    # 2 layers, 1 of 2 KV heads on each rank, 32 numbers for key and value each, 2 bytes.
    assert (memory["token_bytes"], memory["room_bytes"]) == (256, ENGINE["kv_cache_memory_bytes"])
    today = next(row for row in memory["lengths"] if row["max_model_len"] == ENGINE["max_model_len"])
    assert (today["refused"], today["request_bytes"], today["fit"]) == (1, 4096 * 256, 255)
    assert "1 of 5 refused (20.0 %)" in found["output"]


def test_a_window_on_the_real_engine_finds_nothing_wrong_and_restarts_nothing(
    first: str, site: Site, port: int, key: str
) -> None:
    leader = site.leader(NAME)
    run = site.play("diagnose", confirm_diagnose=f"host-a:{NAME}")
    assert run.rc == 0, run.output[-4000:]
    assert "verdict: nothing failed: two requests with a schema at once are answered as one alone is" in run.output
    (folder,) = (site.home / "evidence").glob(f"*-{NAME}-diagnose")
    window = json.loads(Path(folder, "window.json").read_text(encoding="utf-8"))
    assert [one["status"] for one in window["together"]["answers"]] == [200, 200]
    comms = {one["comm"] for one in window["together"]["samples"][0]["processes"]}
    assert {"VLLM::EngineCor", "VLLM::Worker_TP"} <= comms
    tokens = [one["counters"]["generation_tokens"] for one in window["together"]["samples"] if one["counters"]]
    assert tokens[-1] > tokens[0]
    assert site.leader(NAME) == leader
    assert key not in run.output
    assert all(key.encode() not in path.read_bytes() for path in folder.iterdir())


def test_an_engine_that_hangs_in_the_window_is_told_from_a_slow_one_and_goes_on(
    first: str, site: Site, port: int, key: str
) -> None:
    instance = Instance.of(site, NAME)
    with held_worker(instance, begin=False) as hold:
        code, said = diagnosed(site, NAME, hold, diagnose_limit_s=6)
    assert code != 0
    assert "verdict: concurrent structured decoding: one request is answered, two at once are not" in said
    assert "two together: 2 of 2 request(s) had no answer within 6 s; no token comes" in said
    assert "VLLM::Worker_TP T" in said
    assert "Nothing was restarted." in said
    assert answers(port, key), "what was held goes on"
    assert site.leader(NAME) == instance.leader


@contextlib.contextmanager
def held_worker(instance: Instance, begin: bool = True) -> Iterator[Any]:
    """A worker that is held (SIGSTOP) from the beginning, or from when the context's value is called; it goes on afterwards."""

    def hold() -> None:
        instance.signal(WORKER, signal.SIGSTOP, count=1)

    if begin:
        hold()
    try:
        yield hold
    finally:
        instance.signal(WORKER, signal.SIGCONT)


@contextlib.contextmanager
def other_key(site: Site) -> Iterator[None]:
    """A key on the host that is not the one which the engine was started with."""
    path = site.home / "services" / NAME / "api_key"
    before = path.read_text(encoding="utf-8")
    path.write_text("modelyard-another-key", encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


@contextlib.contextmanager
def long_answers(port: int, key: str, count: int) -> Iterator[None]:
    """So many clients with long answers, one after the other."""
    clients = [Stream(port, 3000, key, again=True) for _ in range(count)]
    try:
        until(lambda: figure(port, "vllm:num_requests_running") == count, 60, "all of them are computed")
        yield
        assert all(client.process.poll() is None for client in clients), "they have asked all the time"
    finally:
        for client in clients:
            client.process.kill()
            client.process.wait()
        until(lambda: figure(port, "vllm:num_requests_running") == 0, 60, "the engine has let go of them")


def schema(of: dict[str, Any], max_tokens: int) -> list[dict[str, Any]]:
    """A schema of the inventory, with one field."""
    wanted = {"type": "object", "properties": {"x": of}, "required": ["x"], "additionalProperties": False}
    return [{"name": "wish", "schema": wanted, "max_tokens": max_tokens}]


class Fault(NamedTuple):
    """What is wrong and what is said. `step`: empty for none; `acceptance`, `engine`: changes to the inventory."""

    name: str
    step: str
    words: tuple[str, ...]
    verdict: str = "FAIL"
    acceptance: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    clients: int = 0


ENDLESS = schema({"type": "string", "minLength": 1500}, 2500)
FAULTS = [
    Fault("key", "models", ("HTTP 401: the API key is missing or wrong", "A restart would not help.")),
    Fault(
        "schema that is refused",
        "schema",
        ("schema wish: HTTP 400: the engine cannot hold an answer to this schema", "nothing needs a restart"),
        acceptance={"schemas": schema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, 64)},
    ),
    Fault(
        "slow",
        "schema",
        ("no answer within 3 s: the engine has generated all the time, but too slowly", "nothing needs a restart"),
        acceptance={"schemas": ENDLESS, "request_timeout_s": 3},
    ),
    Fault(
        "hung after a pause",
        "chat",
        ("no answer within 4 s: no token came, and by its own figures", "A restart of the instance may help"),
        acceptance={"request_timeout_s": 4},
    ),
    Fault("length", "", ("instance 0 was not asked", "--max-model-len: 4096 -> 2048"), engine={"max_model_len": 2048}),
    Fault(
        "schema that is cut",
        "schema",
        ("schema wish: the reply is no JSON; it was cut by max_tokens before it was whole", "give it a larger max_tokens"),
        acceptance={"schemas": schema({"type": "string", "minLength": 900}, 32)},
    ),
    Fault(
        "loaded",
        "schema",
        ("no answer within 3 s: the engine is at work for others and still generates", "nothing needs a restart"),
        verdict="BUSY",
        acceptance={"schemas": ENDLESS, "request_timeout_s": 3},
        clients=2,
    ),
    Fault(
        "full",
        "chat",
        ("no room for a request of ours within", "4 running, 0 waiting", "nothing needs a restart"),
        verdict="BUSY",
        acceptance={"busy_wait_s": 2},
        clients=4,
    ),
    Fault(
        "hung in an answer",
        "chat",
        ("no answer within 4 s: the engine has requests and generates no token", "A restart of the instance may help"),
        acceptance={"request_timeout_s": 4},
        clients=1,
    ),
]


@contextlib.contextmanager
def made(fault: Fault, site: Site, instance: Instance, key: str) -> Iterator[None]:
    """The fault, for as long as the context lasts; what was held goes on before clients are looked at."""
    with contextlib.ExitStack() as stack:
        if fault.clients:
            stack.enter_context(long_answers(instance.port, key, fault.clients))
        if fault.name == "key":
            stack.enter_context(other_key(site))
        if fault.name.startswith("hung"):
            stack.enter_context(held_worker(instance))
        yield


@pytest.mark.parametrize("fault", always(4, FAULTS), ids=lambda fault: fault.name)
def test_a_fault_of_the_real_engine_fails_its_step_and_is_said(first: str, site: Site, port: int, key: str, fault: Fault) -> None:
    service, instance = site.services[0], Instance.of(site, NAME)
    before = {part: dict(service[part]) for part in ("acceptance", "engine")}
    for part in before:
        service[part].update(getattr(fault, part))
    try:
        with made(fault, site, instance, key):
            run = site.play("acceptance", acceptance_steps=[fault.step] if fault.step else [])
    finally:
        service.update(before)
    assert (run.rc != 0) == (fault.verdict == "FAIL"), run.output[-3000:]
    said = " ".join(run.output.split())
    assert f"{fault.verdict} {NAME}/0 {fault.step}: " in said or not fault.step
    assert [words for words in fault.words if words not in said] == [], run.output[-3000:]
    assert (run.changed, site.leader(NAME)) == (0, instance.leader)
    assert answers(port, key)
