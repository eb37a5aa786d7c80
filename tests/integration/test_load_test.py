"""Load tests as an admin runs them: the playbook over two instances of a stand-in for vLLM, with our own generator."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from harness import Run, Site, alive, end, free_port, until
from simulators.engine.install import complete_model
from stand_in import Machine

NAME = "two-slots"
KEY = "sk-load-not-to-be-seen"
QUICK = {"load_test_input_tokens": 20, "load_test_output_tokens": 20, "load_test_request_limit_s": 4}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("load")
    machine = Machine(folder, "")
    complete_model(machine.model)
    port = free_port(2)
    settings = json.loads((machine.environment / "stand-in.json").read_text(encoding="utf-8"))
    settings["token_s"] = 0.005
    (machine.environment / "stand-in.json").write_text(json.dumps(settings), encoding="utf-8")
    service = {
        "name": NAME,
        "model": {"id": "tiny", "path": str(machine.model)},
        "topology": {"replicas": 2, "tensor_parallel_size": 1},
        "listen": {"host": "127.0.0.1", "base_port": port},
        "engine": {"max_model_len": 4096, "max_num_seqs": 2, "shutdown_timeout": 1},
        "acceptance": {"serial_requests": 2},
        "runtime_path": str(machine.environment),
        "ready_timeout_s": 60,
    }
    made = Site(folder, [service])
    made.variables["modelyard_api_keys"] = {NAME: KEY}
    run = made.play("deploy", card_test_enabled=False)
    assert run.rc == 0, run.output[-4000:]
    yield made
    assert made.play("teardown", teardown_service=NAME).rc == 0


def load(site: Site, **more: Any) -> Run:
    return site.play("load_test", **{**QUICK, **more})


def said(run: Run) -> str:
    """The output in one line: the report breaks its lines."""
    return " ".join(run.output.split())


def folder(site: Site) -> Path:
    return site.home / "services" / NAME / "load"


def records(site: Site) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder(site).glob("*.json"))]


def port(site: Site, index: int = 0) -> int:
    return int(site.services[0]["listen"]["base_port"]) + index


def leaders(site: Site) -> list[int]:
    return [site.leader(NAME, index) for index in (0, 1)]


def runner(site: Site) -> int:
    """The pid of the process that carries out the test; 0 before there is one."""
    try:
        return int(json.loads((folder(site) / "run/progress.json").read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError):
        return 0


def family(pid: int) -> list[int]:
    """It and its living children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split() if alive(pid) else []
    return [one for one in [pid, *map(int, children)] if alive(one)]


def begun(site: Site, **more: Any) -> tuple[subprocess.Popen[str], list[int]]:
    """(a playbook that is loading the service, the processes of its test on the host)."""
    (folder(site) / "run/progress.json").unlink(missing_ok=True)
    values = {**QUICK, "load_test_concurrency": [4], "load_test_requests": 100000, **more}
    playbook = site.begin("load_test", ("-e", json.dumps(values)))
    until(lambda: runner(site) and len(family(runner(site))) == 2, 60, "the load generator runs")
    return playbook, family(runner(site))


# One story, in this order: each play of a playbook costs seconds, so a test goes on from where the one before has ended.


def test_a_sweep_shows_slots_and_queue_and_is_written_down(site: Site) -> None:
    before = leaders(site)
    run = load(site, load_test_concurrency=[2, 8], load_test_requests=60)
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    assert f"loading {NAME} on host-a with modelyard: concurrency 2, 8" in run.output
    # What was seen once a second, on a machine that may be busy.
    assert re.search(
        r"4 slots \(2 instances of 2\); at concurrency 8 at most [1-4] ran and [0-8] waited in the engines", said(run)
    )
    assert "this vLLM build has no vllm bench serve" in said(run)
    assert KEY not in run.output
    (record,) = records(site)
    assert (record["schema"], record["passed"], record["slots"], record["instances"]) == (1, True, 4, 2)
    assert (record["entry"]["kind"], record["entry"]["port"]) == ("instance", port(site))
    assert [level["completed"] for level in record["levels"]] == [60, 60]
    assert record["levels"][1]["requests_per_s"] > 1.5 * record["levels"][0]["requests_per_s"]
    assert sum(record["levels"][1]["by_backend"].values()) == 60
    assert min(record["levels"][1]["by_backend"].values()) >= 20
    assert record["levels"][1]["server"]["running_max"] == 4
    # 20 tokens of 5 ms: a request alone takes 100 ms, and no client of a full service waits for more than one more round.
    assert 95 <= record["levels"][0]["e2e_ms"]["p50"] < 200
    assert KEY not in json.dumps(record)
    assert leaders(site) == before


def test_the_same_again_is_compared_and_limits_fail_it(site: Site) -> None:
    site.services[0]["load"] = {"limits": {"at": 8, "e2e_p95_ms": 10, "requests_per_s": 5}}
    run = load(site, load_test_concurrency="2,8", load_test_requests=60)
    assert run.rc != 0
    old, new = records(site)
    assert new["passed"] is False
    (complaint,) = new["complaints"]
    assert complaint.startswith("at concurrency 8 the whole answer took")
    assert complaint.endswith("(P95), the limit is 10 ms")
    assert complaint in said(run)
    assert new["compared_with"]["id"] == old["id"]
    assert new["compared_with"]["words"][0].startswith("throughput in requests/s")
    assert not any("->" in word for word in new["compared_with"]["words"])
    del site.services[0]["load"]


@pytest.mark.further
def test_other_shapes(site: Site) -> None:
    run = load(site, load_test_users=6, load_test_pause_s=[0.05, 0.2], load_test_seconds=3)
    assert run.rc == 0, run.output[-4000:]
    users = records(site)[-1]
    assert (users["levels"][0]["kind"], users["levels"][0]["value"], users["compared_with"]) == ("users", 6, None)
    run = load(site, load_test_rates=[10], load_test_seconds=3, only=f"{NAME}:1")
    assert run.rc == 0, run.output[-4000:]
    rate = records(site)[-1]
    assert (rate["slots"], rate["entry"]["port"], set(rate["levels"][0]["by_backend"])) == (2, port(site, 1), {"1"})
    assert 5 < rate["levels"][0]["requests_per_s"] < 15


def test_check_mode_makes_no_load(site: Site) -> None:
    count = len(records(site))
    run = site.play("load_test", "--check", **QUICK)
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert len(records(site)) == count


def test_inputs_that_cannot_be_are_refused_all_at_once(site: Site) -> None:
    run = load(site, load_test_concurrency=[0], load_test_requests=5, load_test_seconds=5, load_test_entry="gateway")
    assert run.rc != 0
    for words in ("load_test_concurrency holds a level", "load_test_requests and load_test_seconds", "has no gateway"):
        assert words in said(run)
    run = load(site, load_test_concurrency=[1], load_test_input_tokens=4000, load_test_output_tokens=200)
    assert "are 4200 together, max_model_len is 4096" in said(run)
    run = load(site, load_test_tool="vllm")
    assert "this vLLM build has no vllm bench serve" in said(run)
    assert "load_test_tool=own" in said(run)


def test_a_service_that_others_use_is_left_alone(site: Site) -> None:
    over = threading.Event()
    threading.Thread(target=asks, args=(site, over), daemon=True).start()
    run = load(site, load_test_concurrency=[1])
    assert run.rc != 0
    assert "1 request of others is running: a load test would make them slow" in said(run)
    assert "-e load_test_anyway=true" in said(run)
    run = load(site, load_test_concurrency=[1], load_test_requests=5, load_test_anyway=True)
    assert run.rc == 0, run.output[-3000:]
    assert "1 request of others is running when the test began: the figures hold for both together" in said(run)
    over.set()
    until(lambda: not running(port(site)), 20, "it is idle")


def asks(site: Site, over: threading.Event) -> None:
    """Somebody who has one request after the other."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "ignore_eos": True}
    request = urllib.request.Request(f"http://127.0.0.1:{port(site)}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {KEY}")
    while not over.is_set():
        urllib.request.urlopen(request, timeout=60).read()


def running(at: int) -> float:
    """Requests that an engine computes now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{at}/metrics", timeout=5) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("vllm:num_requests_running")).split()[-1])


def test_ctrl_c_ends_the_load_and_leaves_nothing_and_a_second_test_is_refused(site: Site) -> None:
    before, count = leaders(site), len(records(site))
    playbook, processes = begun(site)
    run = load(site, load_test_concurrency=[1])
    assert run.rc != 0
    assert f"a load test of {NAME} runs already by" in said(run)
    assert all(alive(pid) for pid in processes)
    os.killpg(playbook.pid, signal.SIGINT)  # as a terminal does
    until(lambda: not any(alive(pid) for pid in processes), 15, "runner and generator have ended")
    playbook.communicate(timeout=60)
    assert leaders(site) == before
    assert len(records(site)) == count
    run = load(site, load_test_concurrency=[1], load_test_requests=5)
    assert run.rc == 0, run.output[-3000:]


@pytest.mark.further
def test_a_tool_that_is_there_and_does_not_run_is_replaced(site: Site) -> None:
    (packages,) = (site.folder / "environment").glob("lib/python3*/site-packages")
    source = packages / "vllm/benchmarks/serve.py"
    source.parent.mkdir(parents=True, exist_ok=True)
    table = tables.bench("0.32.0")
    source.write_text("\n".join(f'"{option}"' for option in [table["api"], *table["options"]]), encoding="utf-8")
    run = load(site, load_test_concurrency=[1], load_test_requests=5, only=f"{NAME}:0")
    assert run.rc == 0, run.output[-3000:]
    assert "vllm bench serve ended with exit code 2: usage: vllm serve MODEL" in said(run)
    assert records(site)[-1]["tool"]["name"] == "modelyard"
    run = load(site, load_test_concurrency=[1], load_test_requests=5, only=f"{NAME}:0", load_test_tool="vllm")
    assert run.rc != 0
    assert "not one of 5 requests was answered: 5 x vllm bench serve ended with exit code 2" in said(run)
    source.unlink()


@pytest.mark.further
def test_a_hung_engine_is_bounded(site: Site) -> None:
    stopped = leaders(site)[0]
    playbook, _ = begun(site)
    os.kill(stopped, signal.SIGSTOP)
    try:
        output, _ = playbook.communicate(timeout=120)
    finally:
        os.kill(stopped, signal.SIGCONT)
        end(playbook)
    assert playbook.returncode != 0
    words = " ".join(output.split())
    assert f"{NAME}/0 has made no token and ended no request for" in words, words[-3000:]
    assert "not ended within 4 s" in words
    assert leaders(site)[0] == stopped


def test_an_engine_that_dies_is_told_and_nothing_is_restarted(site: Site) -> None:
    playbook, _ = begun(site, load_test_requests=400, load_test_concurrency=[4, 5])
    before = leaders(site)
    os.kill(before[1], signal.SIGKILL)
    output, _ = playbook.communicate(timeout=120)
    assert playbook.returncode != 0
    words = " ".join(output.split())
    assert f"{NAME}/1 ended while it was tested; nothing was restarted" in words
    assert "the levels after it were left out" in words
    assert leaders(site) == before
    assert not alive(before[1])
    run = load(site, load_test_concurrency=[1])
    assert run.rc != 0
    assert f"{NAME}/1 does not run" in said(run)
