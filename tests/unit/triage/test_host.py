"""What lies on a host about a failed service: the starts' logs, what is left of it, the kernel's log, and the page about it."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import triage
from ansible_collections.modelyard.core.plugins.module_utils.triage import classify, restart
from ansible_collections.modelyard.core.plugins.module_utils.triage.text import report
from unit.triage.test_classify import CASES

KEY = "modelyard-secret-0a1b2c3d"


@pytest.fixture
def home(tmp_path):
    logs = layout.instance_dir(str(tmp_path), "tiny", 0) / "logs"
    logs.mkdir(parents=True)
    (logs / "1.log").write_text("ValueError: No available memory for the cache blocks.\n")
    (logs / "2.log").write_text(f"Authorization: Bearer {KEY}\nOSError: [Errno 98] Address already in use by {KEY}\n")
    os.utime(logs / "1.log", (1, 1))
    (logs / "current.log").symlink_to("2.log")
    (tmp_path / "sim/dev").mkdir(parents=True)
    (tmp_path / "sim/dev/kmsg").write_text("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
    layout.write_json(tmp_path / "services/tiny/service.json", {"sysroot": str(tmp_path / "sim")})
    (tmp_path / "services/tiny/api_key").write_text(KEY)
    return tmp_path


def test_every_start_is_answered_and_the_newest_is_shown_whole_without_secrets(home):
    before = sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*"))
    seen = triage.look(str(home), "tiny")
    assert [(one["instance"], one["answer"]["cause"], one["running"]) for one in seen["starts"]] == [
        (0, "port_in_use", False),
        (0, "kv_cache_no_blocks", False),
    ]
    assert seen["kernel"]["cause"] == "gpu_off_bus"
    page = report("server1", seen, 1)
    for part in (
        "server1: tiny",
        "port_in_use",
        "A restart is of no use before",
        "1 older starts: kv_cache_no_blocks",
        "off the bus",
    ):
        assert part in page
    assert "Nothing of an old start is alive." in page
    assert KEY not in page + json.dumps(seen)
    assert sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*")) == before


def test_what_is_left_of_an_old_start_is_named(home, monkeypatch):
    left = {"pid": 771, "ppid": 1, "state": "Z", "comm": "VLLM::Worker_TP", "verdict": "ours", "command": "x"}
    monkeypatch.setattr(identity, "census", lambda claim: [left])
    monkeypatch.setattr(identity, "describe", dict)
    seen = triage.look(str(home), "tiny")
    assert (seen["left"], seen["now"]["cause"]) == ([771], "zombie_holds_gpu_memory")
    page = report("server1", seen, 2)
    assert "Not clean" in page and "771 (parent 1, state Z) VLLM::Worker_TP" in page


def test_a_log_that_cannot_be_read_is_said_and_hides_nothing(home, monkeypatch):
    real = triage._pieces

    def pieces(path):
        if path.name == "2.log":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(triage, "_pieces", pieces)
    seen = triage.look(str(home), "tiny")
    assert [one["answer"]["cause"] for one in seen["starts"]] == ["kv_cache_no_blocks"]
    assert "2.log: Permission denied" in report("h", seen, 1)


def test_every_answer_has_a_word_about_a_restart():
    said = {cause: restart.advice(classify(text)) for cause, text in CASES}
    assert said["request_context_too_long"].startswith("of no use: the engine may well be healthy")
    assert said["zombie_holds_gpu_memory"].startswith("of no use, and it would fail")
    assert said["hub_proxy_unreachable"].startswith("of no use before")
    assert said["scheduler_state_assertion"].startswith("of use after the guarded teardown")
    assert restart.advice(classify("")) == "nothing here asks for one"
