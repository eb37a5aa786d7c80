"""The laboratory with the scheduler of the real engine: preemptions happen, faults that were put in are found and made small."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cases import always
from e2e_site import runtime_python
from harness import ROOT

pytestmark = pytest.mark.e2e
LIMIT_S = 300
#: Faults of tests/e2e/faults, and what is said of them.
FAULTS = {"leak": "is held 0 times, by nobody", "crash": "without computed tokens"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runtime_python(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def order(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Sixty-four clients; some share a beginning, want a schema, or go away."""
    chance = random.Random(1)
    requests = [
        {
            "at_ms": place * 5,
            "prompt": chance.randint(5, 60),
            "output": chance.randint(20, 120),
            "schema": place % 4 == 0,
            "shared": 5 if place % 3 == 0 else 0,
            "cancel_after": 10 if place % 7 == 0 else None,
        }
        for place in range(64)
    ]
    settings = {"max_num_seqs": 8, "max_num_batched_tokens": 512, "block_size": 16}
    model = tmp_path_factory.mktemp("model")
    subprocess.run([str(python), str(ROOT / "roles/model/files/tiny_qwen3.py"), str(model)], check=True)
    return {"model": str(model), "settings": settings, "requests": requests, "rounds": 36, "seconds": 60}


def worked(python: Path, order: dict[str, Any], fault: str = "") -> dict[str, Any]:
    """The result of an order."""
    paths = [str(ROOT / "roles/lab/files"), *([str(ROOT / "tests/e2e/faults")] if fault else [])]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "ENGINE_FAULT": fault}
    words = [str(python), "-m", "modelyard_lab"]
    done = subprocess.run(
        words, input=json.dumps(order), env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["result"]
    return result


@pytest.mark.parametrize(("fault", "words"), always(1, FAULTS.items()), ids=FAULTS)
def test_a_fault_of_the_scheduler_is_found_made_small_and_shown_again(
    python: Path, order: dict[str, Any], fault: str, words: str
) -> None:
    found = worked(python, order, fault)["failure"]
    assert words in found["words"]
    assert (found["of_requests"], len(found["requests"]) <= 6) == (64, True), found["requests"]
    kept = {**order, **{key: found[key] for key in ("blocks", "ahead", "seed", "requests")}}
    again = worked(python, kept, fault)["failure"]
    assert (again["kind"], again["step"]) == (found["kind"], found["step"])
    well = worked(python, kept)
    assert well["failure"] is None
    assert well["preemptions"] > 0, "it was not only the want of blocks"


def test_the_scheduler_as_it_is_keeps_its_books_however_short_blocks_are(python: Path, order: dict[str, Any]) -> None:
    result = worked(python, order)
    assert result["failure"] is None
    assert result["vllm"] == "0.32.0"
    ways = {ahead: [level for level in result["levels"] if level["ahead"] is ahead] for ahead in (True, False)}
    for levels in ways.values():
        assert levels[0]["preemptions"] < levels[-1]["preemptions"]
        for level in levels:
            assert level["finished"] + level["cancelled"] == 64 * level["rounds"]
            assert level["used"] <= level["blocks"] - 1
    assert result["preemptions"] > 100
