# ruff: noqa: E501  log lines are as long as they are
"""The same log as others would show it: with prefixes, colours, line breaks, and with lines around it."""

from __future__ import annotations

import json
import textwrap

HEALTHY = [
    '(APIServer pid=1) INFO:     10.0.0.3:46686 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "(APIServer pid=1) INFO 11-29 10:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 431.0 tokens/s, Avg generation throughput: 44.4 "
    "tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.8%, Prefix cache hit rate: 46.8%",
    "INFO 11-29 10:00:00 [cuda_graph.py:1] Capturing cudagraphs for decoding. If out-of-memory error occurs during cudagraph capture, consider decreasing it",
    "(EngineCore pid=2) INFO 11-29 10:00:00 [gpu_worker.py:436] Available KV cache memory: 12.18 GiB",
    "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:01<00:00,  2.75it/s]",
]
#: Symptoms that follow when an engine has failed.
FOLLOWING = [
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "(Worker_TP0 pid=3) INFO 11-29 10:00:09 [multiproc_executor.py:520] Parent process exited, terminating worker",
    "(EngineCore pid=2) ERROR 11-29 10:00:09 [multiproc_executor.py:284] Worker proc VllmWorker-0 died unexpectedly (exit code: -15), shutting down executor.",
    "TimeoutError: RPC call to sample_tokens timed out.",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}",
    "UserWarning: resource_tracker: There appear to be 2 leaked shared_memory objects to clean up at shutdown",
    "(APIServer pid=1) INFO:     Application shutdown complete.",
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    "RuntimeError: No CUDA GPUs are available",
]


def prefixed(prefix):
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def wrapped(width):
    def change(text):
        return "\n".join(
            part
            for line in text.split("\n")
            for part in (
                textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=False) or [""]
            )
        )

    return change


def docker_json(text):
    return "\n".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T10:00:00.1Z"}) for line in text.split("\n")
    )


CHANGES = {
    "compose": prefixed("vllm-1  | "),
    "journald": prefixed("Nov 29 10:00:00 gpu1 vllm[4711]: "),
    "journald-iso": prefixed("2026-11-29T10:00:00+0100 gpu1 launch.sh[4711]: "),
    "kubernetes": prefixed("2026-11-29T10:00:00.123456789Z stderr F "),
    "ci": prefixed("2026-11-29T10:00:00.1234567Z "),
    "ray": prefixed("(RayWorkerWrapper pid=4009, ip=10.0.0.4) "),
    "colour": lambda text: "\n".join(f"\x1b[1;36m{line}\x1b[0;0m" for line in text.split("\n")),
    "quoted": prefixed("> "),
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "upper": str.upper,
    "lower": str.lower,
    "docker": docker_json,
    "wrapped-60": wrapped(60),
    "wrapped-72": wrapped(72),
    "wrapped-80": wrapped(80),
    "two": lambda text: prefixed("vllm-1  | ")(prefixed("[2026-11-29T10:00:00Z] ")(text)),
}
