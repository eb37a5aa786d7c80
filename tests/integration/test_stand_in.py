"""The stand-in behaves as the facts about vLLM 0.32 say: its processes, who holds cards, signals, ends, answers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance, engine_log
from harness import shared_memory, until
from simulators import holders
from simulators.cards import look
from simulators.state import Sim
from stand_in import Machine

TP2 = ["--tensor-parallel-size", "2"]
ENGINE, WORKERS = "VLLM::EngineCore", ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("stand-in"), "2x4090")


@pytest.fixture
def machine(made):
    made.sim.reset()
    yield made
    made.sim.reset()


def used(machine):
    return [card.used for card in look(Sim(machine.sim.root))]


def held(machine):
    return holders.find({number: str(machine.sim.root / f"dev/nvidia{number}") for number in (0, 1)})


def segments(engine):
    """Segments that it holds. Others on this machine may come and go."""
    return {name for pid in engine.members().values() for name in shared_memory(pid)}


def there(names):
    return {name for name in names if Path("/dev/shm", name).exists()}


def environ(pid):
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_two_cards_have_two_workers_which_hold_them(machine):
    with machine.engine(*TP2, "--gpu-memory-utilization", "0.60", env={"MODELYARD_SERVICE": "x"}) as engine:
        members = engine.ready().members()
        assert sorted(members) == sorted(["vllm", "tracker", ENGINE, *WORKERS])
        assert held(machine) == {0: [members[WORKERS[0]]], 1: [members[WORKERS[1]]]}
        assert used(machine) == [29484 + 4] * 2
        assert Path(f"/proc/{members[ENGINE]}/comm").read_text() == "VLLM::EngineCor\n"
        assert Path(f"/proc/{members['vllm']}/comm").read_text() == "vllm\n"
        assert {os.getpgid(pid) for pid in members.values()} == {engine.process.pid}
        assert all(b"MODELYARD_SERVICE=x" in environ(pid) for pid in members.values())
        for name in (ENGINE, *WORKERS):
            assert any(segment.startswith("psm_") for segment in shared_memory(members[name]))
            assert str(machine.environment) in Path(f"/proc/{members[name]}/maps").read_text()
        # Who made a semaphore has it in memory under another name.
        assert any(segment.startswith("sem.mp-") for segment in shared_memory(members[ENGINE]))


def test_one_card_has_no_worker_and_is_held_by_the_engine(machine):
    with machine.engine("--gpu-memory-utilization", "0.5", env={"CUDA_VISIBLE_DEVICES": "1"}) as engine:
        members = engine.ready().members()
        assert sorted(members) == sorted(["vllm", "tracker", ENGINE])
        assert held(machine) == {0: [], 1: [members[ENGINE]]}
        assert used(machine) == [4, 24570 + 4]


def test_a_card_is_found_by_its_uuid(machine):
    uuid = machine.sim.machine["cards"][1]["uuid"]
    with machine.engine(env={"CUDA_VISIBLE_DEVICES": uuid}) as engine:
        member = engine.ready().members()[ENGINE]
        assert held(machine) == {0: [], 1: [member]}


def test_without_the_right_variable_titles_hide_the_environment(machine):
    with machine.engine(env={"SPT_NOENV": "0", "MODELYARD_SERVICE": "x"}) as engine:
        members = engine.ready().members()
        assert environ(members[ENGINE]).strip(b"\0") == b""
        assert b"MODELYARD_SERVICE=x" in environ(members["vllm"])
        assert engine.chat()[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_of_it(machine, number):
    with machine.engine(*TP2, "--shutdown-timeout", "5") as engine:
        owned = segments(engine.ready())
        engine.signal(number)
        assert engine.ended() == 0
        engine.gone()
        assert "mode=drain timeout=5s" in engine.log
    assert used(machine) == [4, 4]
    assert len(owned) == 2
    assert there(owned) == set()


def test_a_stop_lets_open_requests_end_when_it_may_take_so_long(machine):
    answers = []
    with machine.engine("--shutdown-timeout", "10", settings={"token_s": 0.02}) as engine:
        engine.ready()
        client = threading.Thread(target=lambda: answers.append(engine.chat(max_tokens=60, ignore_eos=True)))
        client.start()
        until(lambda: "num_requests_running" in engine.ask("/metrics")[1] and _running(engine) == 1, 5, "it runs")
        engine.signal(signal.SIGTERM)
        time.sleep(0.2)
        assert engine.get("/health") == 200, "also while it drains"
        assert engine.ended() == 0
        client.join()
    assert [status for status, _ in answers] == [200]


def _running(engine):
    return float(re.search(r"^vllm:num_requests_running\{.*\} (\S+)$", engine.ask("/metrics")[1], re.MULTILINE).group(1))


def test_an_open_request_holds_a_stop_without_patience_after_the_engine_is_gone(machine):
    with (
        machine.engine(*TP2, settings={"token_s": 0.1}) as engine,
        socket.create_connection(("127.0.0.1", engine.ready().port)) as client,
    ):
        body = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 500, "ignore_eos": true}'
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        until(lambda: _running(engine) == 1, 5, "it runs")
        engine.signal(signal.SIGTERM)
        until(lambda: sorted(engine.members()) == ["tracker", "vllm"], 5, "the engine is gone")
        assert "force killing remaining process EngineCore" in engine.log
        until(lambda: "Waiting for connections to close" in engine.log, 5, "it waits")
        time.sleep(0.5)
        assert engine.process.poll() is None
        client.close()
        assert engine.ended() == 0


def test_a_killed_api_server_leaves_the_rest_which_ends_by_term_to_the_engine(machine):
    with machine.engine(*TP2) as engine:
        owned = segments(engine.ready())
        engine.signal(signal.SIGKILL)
        engine.ended()
        time.sleep(0.5)
        assert sorted(engine.members()) == sorted(["tracker", ENGINE, *WORKERS])
        assert min(used(machine)) > 40000
        assert there(owned) == owned
        with socket.create_server(("127.0.0.1", engine.port)):
            pass  # the port is free
        engine.signal(signal.SIGTERM, ENGINE)
        engine.gone()
    assert used(machine) == [4, 4]
    assert there(owned) == set()


@pytest.mark.parametrize("who", [ENGINE, WORKERS[1]])
def test_the_death_of_engine_or_worker_shows_in_health_and_then_ends_the_server_with_0(machine, who):
    with machine.engine(*TP2) as engine:
        engine.ready().signal(signal.SIGKILL, who)
        until(lambda: engine.get("/health") == 503, 5, "503")
        assert engine.chat()[0] in (0, 500)
        assert engine.ended() == 0
        engine.gone()
        assert engine_log.fatal_lines(engine.log)
        assert (who == ENGINE) != ("Worker proc VllmWorker-1 died unexpectedly (exit code: -9)" in engine.log)


def test_a_signal_while_loading_ends_badly_or_is_lost(machine):
    with machine.engine(settings={"load_s": 2}) as engine:
        until(lambda: "Starting to load" in engine.log, 5, "it loads")
        engine.signal(signal.SIGTERM)
        assert engine.ended() == 1
        assert ENGINE in engine.members(), "the engine stays behind"
    with machine.engine(settings={"load_s": 1, "load_signal": "lost"}) as engine:
        until(lambda: "Starting to load" in engine.log, 5, "it loads")
        engine.signal(signal.SIGTERM)
        engine.ready().signal(signal.SIGTERM)
        assert engine.ended() == 0
    with machine.engine(*TP2, settings={"load_s": 2, "load_signal": "clean"}) as engine:
        until(lambda: "Starting to load" in engine.log, 5, "it loads")
        engine.signal(signal.SIGINT)
        assert engine.ended() == 1
        engine.gone()


def test_the_first_signals_can_be_lost_and_members_can_be_stubborn(machine):
    with machine.engine(*TP2, settings={"lose_signals": 1, "stubborn": ["worker"]}) as engine:
        engine.ready().signal(signal.SIGINT)
        time.sleep(0.3)
        assert engine.get("/health") == 200
        members = engine.members()
        os.kill(members[WORKERS[0]], signal.SIGTERM)
        os.kill(members["vllm"], signal.SIGKILL)
        os.kill(members[ENGINE], signal.SIGKILL)
        time.sleep(0.5)
        assert set(WORKERS) <= set(engine.members()), "they ignore TERM and outlive their engine"


REFUSALS = [
    (["--no-such-option", "1"], {}, {}, 2, "error: unrecognized arguments: --no-such-option 1"),
    (["--max-model-len", "65536"], {}, {}, 1, "(65536) is greater than the derived max_model_len"),
    ([], {"CUDA_VISIBLE_DEVICES": ""}, {}, 1, "RuntimeError: No CUDA GPUs are available"),
    (TP2, {"CUDA_VISIBLE_DEVICES": "1"}, {}, 1, "World size (2) is larger than the number of available GPUs (1)"),
    (TP2, {}, {"die": "loading"}, 1, "RuntimeError: the stand-in was told to die"),
    ([], {}, {"die": "engine"}, 1, "RuntimeError: the stand-in was told to die"),
    ([], {}, {"die": "import"}, 1, "ImportError: libcudart.so.13: cannot open shared object file"),
]


@pytest.mark.parametrize(("words", "env", "settings", "status", "said"), REFUSALS)
def test_a_failed_start_says_why_and_leaves_nothing(machine, words, env, settings, status, said):
    with machine.engine(*words, env=env, settings=settings) as engine:
        assert engine.ended() == status
        engine.gone()
        assert any(said in line for line in engine_log.deciding_lines(engine.log)), engine.log
    assert used(machine) == [4, 4]


def test_a_busy_port_refuses_before_anything_is_loaded(machine):
    with socket.create_server(("127.0.0.1", 0)) as listener, machine.engine(port=listener.getsockname()[1]) as engine:
        assert engine.ended() == 1
        assert "Address already in use" in engine.log
        assert "Initializing a V1" not in engine.log


def test_memory_of_others_refuses_the_start(machine):
    machine.sim.set("memory_stays", 30000, card=0)
    with machine.engine("--gpu-memory-utilization", "0.60") as engine:
        assert engine.ended() == 1
        assert "ValueError: Free memory on device cuda:0 (18.06/47.99 GiB) on startup is less than desired" in engine.log


def test_a_lost_card_is_none(machine):
    machine.sim.set("lost", card=1)
    with machine.engine(env={"CUDA_VISIBLE_DEVICES": "1"}) as engine:
        assert engine.ended() == 1
        assert "No CUDA GPUs are available" in engine.log


def test_a_start_is_followed_by_its_log(machine):
    seen = []
    with machine.engine(*TP2, settings={"load_s": 1}) as engine:
        while engine.get("/health") != 200:
            phase = engine_log.progress(engine.log)[0]
            seen += [phase] if phase not in seen else []
            time.sleep(0.02)
    order = [phase.id for phase in engine_log.PHASES]
    assert seen == sorted(seen, key=order.index)
    assert {"launching", "loading", "graphs"} <= set(seen)


@pytest.fixture(scope="module")
def serving(made):
    words = ["--served-model-name", "m", "--max-model-len", "100", "--max-num-seqs", "1"]
    # On CPU, so that the cards stay free.
    with made.engine(*words, env={"VLLM_API_KEY": "k"}, settings={"sysroot": ""}) as engine:
        assert sorted(engine.ready().members()) == sorted(["vllm", "tracker", ENGINE, "VLLM::Worker"])
        yield engine


def ask(engine, path="/v1/chat/completions", **more):
    body = {"model": "m", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **more} if more else None
    return engine.ask(path, body, Authorization="Bearer k")


def test_what_needs_no_key(serving):
    assert serving.ask("/version") == (200, {"version": "0.32.0"})
    assert serving.ask("/load") == (200, {"server_load": 0})
    assert [serving.get(path) for path in ("/health", "/ping", "/metrics", "/v1/models", "/server_info")] == [
        200,
        200,
        200,
        401,
        404,
    ]


def test_models_say_their_length(serving):
    (model,) = ask(serving, "/v1/models")[1]["data"]
    assert (model["id"], model["max_model_len"]) == ("m", 100)


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"model": "n"}, 404, "The model `n` does not exist"),
        ({"max_tokens": 4000}, 400, "max_tokens=4000 cannot be greater than max_model_len=100"),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, 400, "maximum context length is 100 tokens"),
        ({"logprobs": True, "top_logprobs": 21}, 400, "Requested sample logprobs of 21, which is greater than max allowed: 20"),
        ({"messages": 1}, 400, "cannot be read"),
    ],
)
def test_what_is_refused(serving, more, status, said):
    found, body = ask(serving, **more)
    assert found == status
    assert said in body["error"]["message"]


def test_logprobs_have_so_many_alternatives(serving):
    _, body = ask(serving, logprobs=True, top_logprobs=5)
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"] == 8
    assert {len(token["top_logprobs"]) for token in content} == {5}


def test_a_stream_has_all_tokens_and_an_end(serving):
    _, text = ask(serving, stream=True, stream_options={"include_usage": True})
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert '"completion_tokens": 8' in events[-2]
    assert sum('"content": "' in event and '"content": ""' not in event for event in events) == 8


def test_guided_answers_fit_unless_told_otherwise(serving, machine):
    form = {"type": "json_schema", "json_schema": {"name": "probe", "schema": acceptance.SCHEMA}}
    _, body = ask(serving, max_tokens=90, response_format=form)
    jsonschema.validate(json.loads(body["choices"][0]["message"]["content"]), acceptance.SCHEMA)
    said = {}
    for guided in ("empty", "text", "cut"):
        with machine.engine(settings={"guided": guided}) as engine:
            _, body = engine.ready().chat(max_tokens=200, response_format=form)
            said[guided] = body["choices"][0]["message"]["content"]
    assert said["empty"] == "{}"
    assert said["text"].startswith("This is a stand-in")
    assert said["cut"].startswith('{"answer"')
    assert not said["cut"].endswith("}")


def test_a_hung_engine_keeps_its_health(machine):
    with machine.engine(settings={"hang": "answers"}) as engine:
        assert engine.ready().chat(timeout_s=0.5)[0] == 0
        assert engine.get("/health") == 200


def test_a_rank_that_does_not_answer_kills_the_engine_at_the_first_request(machine):
    with machine.engine(*TP2, settings={"die": "request"}) as engine:
        assert engine.ready().chat()[0] == 500
        assert engine.ended() == 0
        assert "TimeoutError: RPC call to sample_tokens timed out." in engine.log
        engine.gone(15)
