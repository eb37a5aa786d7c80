"""Questions to the real engine over two ranks: which context prompts need, and do two structured requests at once harm it?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_site import ENGINE, get, make_site, torn_down
from harness import Site

pytestmark = pytest.mark.e2e
NAME = "tiny-asked"
WORDS = "Say hello to the place of Paris. "
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": WORDS}]}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": "x" * 500}, {"role": "user", "content": WORDS * 40}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Grüße, 世界"}]}]}),
    ("/v1/completions", {"prompt": WORDS * 7}),
]
TOO_LONG = {"messages": [{"role": "user", "content": "zq" * 4000}]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = make_site(tmp_path_factory.mktemp("asked"), NAME, replicas=1, tp=2)
    yield from torn_down(made)


@pytest.fixture(scope="module")
def port(site: Site) -> int:
    deployed = site.play("deploy")
    assert deployed.rc == 0, deployed.output[-4000:]
    return int(site.services[0]["listen"]["base_port"])


def fit(site: Site, lines: list[Any], **extra: Any) -> dict[str, Any]:
    """Ask for the context of some lines; the result of this host."""
    file, target = site.folder / "prompts.jsonl", site.folder / "fit.json"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run = site.play("context_fit", context_fit_file=str(file), context_fit_json=str(target), **extra)
    assert run.rc == 0, run.output[-4000:]
    result: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))["hosts"]["host-a"]
    return {**result, "output": run.output}


def test_prompts_are_counted_as_the_engine_counts_them_and_the_cache_is_as_its_log_says(site: Site, port: int) -> None:
    counted = []
    for path, request in REQUESTS:
        status, reply = get(port, path, body={"model": "tiny", "max_tokens": 1, **request})
        assert status == 200, reply
        counted.append(reply["usage"]["prompt_tokens"])
    status, reply = get(port, "/v1/chat/completions", body={"model": "tiny", **TOO_LONG})
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


def test_a_window_on_the_real_engine_finds_nothing_wrong_and_restarts_nothing(site: Site, port: int) -> None:
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
