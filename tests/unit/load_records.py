"""Levels and records of load tests for tests, in the shapes of judge/load/."""

from __future__ import annotations

from typing import Any

NO_LIMITS: dict[str, Any] = {"at": 0, "e2e_p95_ms": None, "ttft_p95_ms": None, "error_rate": 0.0, "requests_per_s": None}
SHAPE: dict[str, Any] = {
    "kind": "concurrency",
    "values": [8, 16, 32],
    "input_tokens": 256,
    "output_tokens": 100,
    "seed": 0,
    "ignore_eos": True,
    "requests": 0,
    "seconds": 0.0,
    "pause_s": [],
}


def latency(p50: float, p95: float) -> dict[str, float]:
    return {"p50": p50, "p95": p95, "p99": p95 * 1.1}


def level(value: float, tokens_per_s: float, **changes: Any) -> dict[str, Any]:
    """A level at which 100 requests of 100 tokens each were answered."""
    base = {
        "kind": "concurrency",
        "value": value,
        "requests": 100,
        "completed": 100,
        "failed": 0,
        "seconds": 10000 / tokens_per_s if tokens_per_s else 1.0,
        "requests_per_s": tokens_per_s / 100,
        "output_tokens_per_s": float(tokens_per_s),
        "input_tokens_per_s": 2.56 * tokens_per_s,
        "ttft_ms": latency(50, 80),
        "itl_ms": latency(20, 25),
        "e2e_ms": latency(2000, 2500),
        "errors": {},
        "error_example": "",
        "by_backend": {"0": 50, "1": 50},
        "server": {"running_max": 4, "waiting_max": 0, "kv_usage_max": 0.3, "preemptions": 0},
        "cards": [{"index": 0, "utilization_median": 95, "memory_used_max_mib": 40000}],
        "client_cpu": 0.2,
    }
    found = {**base, **changes}
    if "failed" in changes and "completed" not in changes:
        found["completed"] = found["requests"] - found["failed"]
    return found


def measured(levels: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """What the runner has of a run, before it is judged."""
    return {
        "id": "20261130T120000Z",
        "at": 1.0,
        "service": "tiny",
        "tool": {"name": "modelyard", "version": "0.1.0"},
        "seed": 0,
        "entry": {"kind": "gateway", "host": "127.0.0.1", "port": 8000},
        "shape": SHAPE,
        "slots": 8,
        "instances": 2,
        "runtime": {"vllm": "0.32.0"},
        "parameters": {"engine.max_num_seqs": "4"},
        "parameters_digest": "abc",
        "levels": levels,
        "limits": NO_LIMITS,
        "notes": [],
        **changes,
    }
