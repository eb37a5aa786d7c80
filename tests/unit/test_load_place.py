"""Records and the lock of load tests on a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.load import bench, generators, place
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables

HOLDER = {"by": "anna on desk", "since": "2026-11-30 12:00:00 UTC", "service": "tiny"}
TABLE = tables.bench("0.32.0")


def test_the_lock_names_its_holder_and_is_free_when_its_process_has_ended(tmp_path: Path) -> None:
    lock = place.take(str(tmp_path), HOLDER)
    assert place.is_held(str(tmp_path))
    with pytest.raises(place.Busy, match=r"a load test of tiny runs already by anna on desk, since 2026-11-30"):
        place.take(str(tmp_path), {})
    os.close(lock)
    assert not place.is_held(str(tmp_path))
    os.close(place.take(str(tmp_path), HOLDER))


def test_a_lock_that_a_process_died_with_is_free(tmp_path: Path) -> None:
    opened = f"os.open({str(tmp_path / place.LOCK)!r}, os.O_CREAT | os.O_RDWR)"
    text = f"import fcntl, os; fcntl.flock({opened}, fcntl.LOCK_EX); os._exit(9)"
    subprocess.run([sys.executable, "-c", text], check=False)
    os.close(place.take(str(tmp_path), HOLDER))


def test_a_home_without_a_lock_is_not_held(tmp_path: Path) -> None:
    assert not place.is_held(str(tmp_path / "no home"))


def test_the_oldest_records_go_and_the_last_that_passed_stays(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{ half", encoding="utf-8")
    for number in range(1, 8):
        place.keep(tmp_path, {"id": str(number), "passed": number in (1, 2)}, 3)
    assert [record["id"] for record in place.records(tmp_path)] == ["2", "5", "6", "7"]
    assert json.loads((tmp_path / "2.json").read_text(encoding="utf-8"))["passed"] is True


def test_two_records_of_one_second_have_two_names(tmp_path: Path) -> None:
    first = place.stamp(tmp_path)
    (tmp_path / f"{first}.json").touch()
    assert place.stamp(tmp_path) != first


def test_a_record_that_cannot_be_written_leaves_the_others(tmp_path: Path) -> None:
    place.keep(tmp_path, {"id": "1", "passed": True}, 3)
    with pytest.raises(FileNotFoundError):
        place.keep(tmp_path, {"id": "no/such/folder", "passed": True}, 1)
    assert [record["id"] for record in place.records(tmp_path)] == ["1"]


# -- vllm bench serve ---------------------------------------------------------------------------------------------------


def runtime(folder: Path, text: str) -> str:
    source = folder / "lib/python3.11/site-packages" / TABLE["source"]
    source.parent.mkdir(parents=True)
    source.write_text(text, encoding="utf-8")
    (folder / "bin").mkdir()
    (folder / "bin/vllm").touch()
    return str(folder)


WHOLE = "\n".join(f'parser.add_argument("{option}")' for option in [TABLE["api"], *TABLE["options"], "--temperature"])


def test_a_build_with_the_tool_can_be_used(tmp_path: Path) -> None:
    assert bench.missing(runtime(tmp_path, WHOLE), TABLE) == ""


def test_a_build_without_it_or_with_another_one_cannot(tmp_path: Path) -> None:
    assert "is not known" in bench.missing(str(tmp_path), {})
    assert "there is no bin/vllm" in bench.missing(str(tmp_path), TABLE)
    folder = runtime(tmp_path, WHOLE.replace('"--result-dir"', '"--output"'))
    assert bench.missing(folder, TABLE) == "vllm bench serve of this build does not have --result-dir"
    (tmp_path / "lib/python3.11/site-packages" / TABLE["source"]).unlink()
    assert "has no vllm bench serve" in bench.missing(folder, TABLE)


def test_of_a_tool_that_failed_the_last_error_is_told():
    said = ["Traceback", "ValueError: no data set", "nanobind: leaked 514 functions!", " - leaked function"]
    assert generators.telling(said) == "ValueError: no data set"
    assert generators.telling(["usage: vllm serve MODEL"]) == "usage: vllm serve MODEL"
    assert generators.telling([]) == "it said nothing"


def test_the_key_is_in_the_environment_and_on_no_command_line(tmp_path: Path) -> None:
    shape = {"input_tokens": 256, "output_tokens": 128, "seed": 3}
    request = {"runtime": runtime(tmp_path, WHOLE), "bench": TABLE, "shape": shape, "model": "tiny", "model_path": "/srv/tiny"}
    words = bench.command(request, {"kind": "concurrency", "value": 8, "requests": 40}, ("0.0.0.0", 8000), tmp_path)
    line = " ".join(words)
    assert "--backend openai-chat --endpoint /v1/chat/completions --base-url http://127.0.0.1:8000 " in line
    assert "--max-concurrency 8" in line
    assert line.endswith("--temperature 0")  # --save-detailed is not in this build
    rate = bench.command(request, {"kind": "rate", "value": 2.5, "requests": 40}, ("::1", 8000), tmp_path)
    assert "--request-rate 2.5" in " ".join(rate)
    assert "--max-concurrency" not in rate
    values = bench.environment({"HOME": "/root", "http_proxy": "http://127.0.0.1:1"}, "/rt", "sk-secret", "nvidia")
    assert values["OPENAI_API_KEY"] == "sk-secret"
    assert "http_proxy" not in values
    assert "OPENAI_API_KEY" not in bench.environment({}, "/rt", "", "cpu")
