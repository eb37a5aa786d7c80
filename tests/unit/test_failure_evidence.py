"""What is kept of an acceptance that failed: all of it, bounded, never overwritten, and without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.survey import failure_evidence
from unit.spoilt import LIMIT, plan, walked

KEY = "modelyard-secret-0a1b2c3d"


def kept(home, engine, **spoilt: Any):
    (home / "services/tiny-qwen3/api_key").write_text(KEY + "\n")
    (home / "services/tiny-qwen3/manifest.json").write_text('{"schema": 2, "name": "tiny-qwen3"}')
    with (home / "engine.log").open("a") as stream:
        stream.write(f"started with VLLM_API_KEY={KEY} and https://ann:pass-word-1@proxy.example/\n")
    engine.spoilt = {"key": KEY, **spoilt}
    made, entries = walked(home, plan(engine))
    failing = acceptance.failing(entries)
    folder, problems = failure_evidence.keep(str(home), "tiny-qwen3", failing[0], entries, made)
    return Path(folder), problems


def test_a_failure_is_kept_whole_and_without_secrets(home, engine):
    folder, problems = kept(home, engine, status=500, body='you sent "Authorization: Bearer {key}" and {key}')
    assert problems == []
    assert folder.name.endswith("-tiny-qwen3-failed_chat")
    assert {path.name for path in folder.iterdir()} == {
        *("verdicts.json", "replies.json", "processes.json", "cards.json", "kernel.log", "counters.json"),
        *("manifest.json", "instance-0-state.json", "instance-0.log"),
    }
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert not [name for name, text in texts.items() if KEY in text or "pass-word-1" in text]
    replies = json.loads(texts["replies.json"])["chat/0"]
    assert replies["asked"][0]["messages"][0]["content"] == "Say hello."
    assert replies["answers"][0]["status"] == 500
    assert "[removed]" in replies["answers"][0]["body"]
    assert "INFO ready" in texts["instance-0.log"]
    assert json.loads(texts["counters.json"])["0"]["generation_tokens"] == 1000.0
    assert json.loads(texts["verdicts.json"])[-1]["cause"] == "engine_error"


def test_a_prompt_that_was_too_long_names_its_folder_and_a_second_failure_overwrites_nothing(home, engine):
    first, _ = kept(home, engine, status=400, body=LIMIT)
    before = (first / "verdicts.json").read_text()
    second, _ = kept(home, engine, status=400, body=LIMIT)
    assert "failed_ctx8192" in first.name
    assert first != second
    assert (first / "verdicts.json").read_text() == before


def test_evidence_does_not_grow_without_end_and_a_full_disk_is_said(home, engine, monkeypatch):
    evidence = failure_evidence.evidence
    monkeypatch.setattr(evidence, "FOLDER_BYTES", 10)
    folder, problems = kept(home, engine, status=500, body="x")
    assert "move old evidence away" in problems[0]
    assert not (folder / "instance-0.log").exists()
    assert (folder / "replies.json").exists()
    monkeypatch.setattr(evidence, "FOLDER_BYTES", 2**30)
    monkeypatch.setattr(evidence, "LOG_BYTES", 40)
    monkeypatch.setattr(evidence, "DOCUMENT_BYTES", 50)
    folder, _ = kept(home, engine, status=500, body="x")
    assert (folder / "instance-0.log").stat().st_size <= 40
    assert "characters were left out" in (folder / "replies.json").read_text()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    engine.spoilt = {"status": 500}
    made, entries = walked(home, plan(engine))
    _, problems = failure_evidence.keep(str(home), "tiny-qwen3", acceptance.failing(entries)[0], entries, made)
    assert all("No space left on device" in problem for problem in problems)
    assert len(problems) >= 5
