"""Against six real logs of vLLM 0.32.0 on CPU (tests/fixtures), and against any text at all."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_log
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

LOGS = worlds.ROOT / "tests/fixtures/vllm-logs-0.32.0-cpu"
NAMES = [
    "engine-core-sigkilled",
    "sigterm-default-zero-grace",
    "sigterm-drain-20s",
    "startup-failed-numa",
    "tp2-sigterm-inflight-request",
    "worker-sigkilled",
]
ISSUE = "EngineCore encountered an issue. See stack trace (above) for the root cause."
DEAD = f"vllm.v1.engine.exceptions.EngineDeadError: {ISSUE}"
ORDER = ["launching", "configuring", "engine", "loading", "loaded", "cache", "graphs", "serving"]


def log(name):
    return (LOGS / f"{name}.log").read_bytes().decode("utf-8", "replace")  # carriage returns stay, as on a host


def test_all_six_logs_are_here_and_judged():
    assert sorted(p.stem for p in LOGS.glob("*.log")) == NAMES


@pytest.mark.parametrize(
    ("name", "progress"),
    [
        (name, ("serving", "engine ready, opening the port"))
        if name != "startup-failed-numa"
        else (name, ("engine", "starting the engine and its workers"))
        for name in NAMES
    ],
)
def test_the_phase_that_a_start_reached(name, progress):
    assert engine_log.progress(log(name)) == progress


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        (0, ("launching", "loading Python packages")),
        (7, ("launching", "loading Python packages")),
        (8, ("configuring", "reading the model's configuration")),
        (19, ("configuring", "reading the model's configuration")),
        (20, ("engine", "starting the engine and its workers")),
        (51, ("loading", "loading weights")),
        (56, ("loading", "loading weights, 0 %")),
        (57, ("loading", "loading weights, 100 %")),
        (59, ("loaded", "weights loaded")),
        (65, ("cache", "KV cache for 4,194,304 tokens laid out, warming up")),
        (66, ("serving", "engine ready, opening the port")),
    ],
)
def test_how_far_a_start_of_two_ranks_is_after_so_many_lines(lines, progress):
    beginning = "\n".join(log("tp2-sigterm-inflight-request").split("\n")[:lines])
    assert engine_log.progress(beginning) == progress


@pytest.mark.parametrize("name", NAMES)
def test_a_longer_log_is_never_an_earlier_phase(name):
    text = log(name)
    ends = [*range(0, len(text), 97), len(text)]
    reached = [ORDER.index(engine_log.progress(text[:end])[0]) for end in ends]
    assert reached == sorted(reached)


def test_the_phases_are_these_in_this_order():
    assert [p.id for p in engine_log.PHASES] == ORDER


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Starting to load model /m\nLoading safetensors checkpoint shards:  33% Completed | 1/3",
            "loading weights, 33 %",
        ),
        (
            "KV cache size: 100 tokens\nCapturing CUDA graphs (decode, FULL):  40%|####      | 2/5",
            "compiling and capturing graphs, 40 %",
        ),
        ("GPU KV cache size: 1,024 tokens", "KV cache for 1,024 tokens laid out, warming up"),
        ("# GPU blocks: 100, # CPU blocks: 0", "KV cache laid out, warming up"),
    ],
)
def test_percentages_and_the_size_of_the_kv_cache_are_shown(text, words):
    assert engine_log.progress(text)[1] == words


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "startup-failed-numa",
            [
                "AssertionError: Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers. "
                "Allowed NUMA nodes are [0]. Please try to bind threads manually or decrease DP/TP/PP.",
            ],
        ),
        (
            "worker-sigkilled",
            [
                "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
            ],
        ),
        ("engine-core-sigkilled", [DEAD]),
        ("sigterm-default-zero-grace", [DEAD]),
        ("sigterm-drain-20s", [DEAD]),
        (
            "tp2-sigterm-inflight-request",  # a clean stop decides nothing: its end is shown
            [
                "INFO:     Waiting for connections to close. (CTRL+C to force quit)",
                "INFO:     Waiting for application shutdown.",
                "INFO:     Application shutdown complete.",
                " - ... skipped remainder",
                " - ... skipped remainder",
                "  warnings.warn('resource_tracker: There appear to be %d '",
                "/usr/local/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: "
                "There appear to be 4 leaked shared_memory objects to clean up at shutdown",
                "  warnings.warn('resource_tracker: There appear to be %d '",
            ],
        ),
    ],
)
def test_the_lines_that_decide_why_an_engine_ended(name, lines):
    assert engine_log.deciding_lines(log(name)) == lines


@pytest.mark.parametrize(
    ("name", "fatal"),
    [
        ("engine-core-sigkilled", [DEAD]),
        (
            "worker-sigkilled",
            [
                "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
                "EngineCore encountered a fatal error.",
                'raise RuntimeError("Executor failed.")',
                "RuntimeError: Executor failed.",
                DEAD,
                'raise RuntimeError("Executor failed.")',
                "RuntimeError: Executor failed.",
            ],
        ),
        ("tp2-sigterm-inflight-request", []),
    ],
)
def test_a_dead_engine_is_seen_in_its_log_and_a_stopped_one_is_not(name, fatal):
    assert engine_log.fatal_lines(log(name)) == fatal


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_start_holds_no_fatal_line(name):
    beginning = log(name).partition("[shutdown]")[0].partition(" ERROR ")[0]
    assert engine_log.fatal_lines(beginning) == []


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=9) ERROR 11-29 15:43:33 [async_llm.py:906] TimeoutError: RPC call to sample_tokens timed out.",
        "(EngineCore pid=9) INFO 08-13 11:27:02 [shm.py:802] No available shared memory broadcast block found",
    ],
)
def test_the_end_of_story_a_is_fatal(line):
    assert len(engine_log.fatal_lines(f"fine\n{line}\nfine\n")) == 1


FATAL = "(EngineCore pid=14074) ERROR 11-30 17:20:25 [core.py:1512] "
#: As 0.32.0 wrote it when structured decoding failed; another process told of an error of its own in between.
TRACE = [
    f"{FATAL}EngineCore encountered a fatal error.",
    f"{FATAL}Traceback (most recent call last):",
    "(APIServer pid=13892) ERROR 11-30 17:20:25 [serving.py:9] ValueError: no such tool",
    f'{FATAL}    raise RuntimeError("two grammars in one batch")',
    f"{FATAL}RuntimeError: two grammars in one batch",
]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (TRACE, "EngineCore encountered a fatal error. RuntimeError: two grammars in one batch"),
        (TRACE[:3], "EngineCore encountered a fatal error."),
        ([TRACE[0].partition(") ")[2], *TRACE[3:]], "EngineCore encountered a fatal error."),
    ],
)
def test_a_fatal_line_that_gives_no_reason_is_followed_by_the_one_its_process_gives(lines, said):
    assert engine_log.fatal_lines("\n".join(lines)) == [said]


# A cause, then what vLLM says afterwards: only the cause decides.
AFTERMATH = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'x': 1}\n"


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("KeyError: 'rope_theta'", ["KeyError: 'rope_theta'"]),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.71 GiB.",
            ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.71 GiB."],
        ),
        (
            "(EngineCore pid=9) ERROR 11-29 15:45:24 [c.py:1] RuntimeError: CUDA error: no kernel image is available",
            ["RuntimeError: CUDA error: no kernel image is available"],
        ),
        ("OSError: [Errno 98] Address already in use", ["OSError: [Errno 98] Address already in use"]),
        ("vllm serve: error: unrecognized arguments: --nope", ["vllm serve: error: unrecognized arguments: --nope"]),
        ("/opt/launch.sh: line 9: /opt/bin/vllm: No such file or directory", None),
        ("keeper: launch.sh could not be started: [Errno 8] Exec format error", None),
        ("MemoryError", None),
        ("Segmentation fault (core dumped)", None),
    ],
)
def test_known_causes_decide_and_their_consequences_do_not(cause, lines):
    text = f"INFO fine\n{cause}\nTraceback (most recent call last):\n{AFTERMATH}"
    assert engine_log.deciding_lines(text) == (lines or [cause])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("ModelConfig", "User-specified max_model_len (131072) is greater than the derived max_model_len (32768)"),
        ("ParallelConfig", "World size (2) is larger than the number of available GPUs (1) in this node."),
    ],
)
def test_a_refused_configuration_is_shown_with_its_reason(model, reason):
    # pydantic writes the reason on the lines after the name of its error.
    text = (
        "(APIServer pid=1) Traceback (most recent call last):\n"
        f"(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for {model}\n"
        f"(APIServer pid=1)   Value error, {reason} [type=value_error, input_value=ArgsKwargs(())]\n"
        "(APIServer pid=1)     For further information visit https://errors.pydantic.dev/2.13/v/value_error\n"
    )
    assert any(reason in line for line in engine_log.deciding_lines(text))


def test_a_repeated_cause_is_shown_once_and_the_first_eight_at_most():
    text = "ValueError: same\n" * 50 + "".join(f"ValueError: number {i}\n" for i in range(20))
    lines = engine_log.deciding_lines(text)
    assert lines == ["ValueError: same", *(f"ValueError: number {i}" for i in range(7))]


def test_an_empty_log_decides_nothing():
    assert engine_log.deciding_lines("") == []
    assert engine_log.deciding_lines("\n  \n") == []
    assert engine_log.progress("") == ("launching", "loading Python packages")


PIECES = st.sampled_from(
    [
        *("\n", "\r", "\x0b", "\u2028", "\0", " ", ": ", "/"),
        *(
            "ERROR 11-29 15:43:33 [a.py:1] ",
            "(EngineCore pid=1) ",
            "ValueError",
            "EngineDeadError",
            "init engine ",
            " took",
        ),
        *(
            "KV cache size: ",
            "1,0",
            " tokens",
            "checkpoint shards: ",
            "5%",
            "Starting to load model",
            "Killed",
            "died unexpectedly",
        ),
    ]
)
TEXT = st.lists(PIECES | st.text(max_size=6), max_size=40).map("".join)


@given(TEXT)
def test_any_text_is_read_without_breaking_and_the_answer_is_short(text):
    phase, words = engine_log.progress(text)
    assert phase in ORDER
    assert 0 < len(words) < 200
    for lines in (engine_log.deciding_lines(text), engine_log.fatal_lines(text)):
        assert len(lines) <= 8
        assert all(line in text for line in lines)


@given(TEXT, TEXT)
def test_more_text_is_never_an_earlier_phase(text, more):
    before, after = engine_log.progress(text)[0], engine_log.progress(text + more)[0]
    assert ORDER.index(before) <= ORDER.index(after)


def test_a_library_that_is_missing_is_the_first_cause_though_it_is_only_a_warning():
    warned = "ImportError('libnuma.so.1: cannot open shared object file: No such file or directory')"
    later = "AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'"
    text = f"(VllmWorker-0 pid=233) WARNING 11-30 20:48:16 [cpu.py:644] Failed to import from vllm._C: {warned}\n"
    text += f"(VllmWorker-0 pid=233) ERROR 11-30 20:48:20 [multiproc_executor.py:953] {later}\n"
    assert engine_log.deciding_lines(text) == [f"Failed to import from vllm._C: {warned}", later]
