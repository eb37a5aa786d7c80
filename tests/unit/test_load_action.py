"""The action of a load test: what is ended when the run is ended, and what is returned."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.action import load_test
from ansible_collections.modelyard.core.plugins.module_utils.judge.load import record
from unit.load_records import level, measured

BOTH = {signal.SIGINT, signal.SIGTERM}


@pytest.mark.filterwarnings("ignore:Exception ignored")  # Python says of the second one that nobody hears it any more
def test_both_signals_at_once_end_the_test_on_the_host_before_this_run(monkeypatch):
    """Ansible hands Ctrl-C on to its worker, and sends SIGTERM right behind it."""
    done: list[Any] = []
    monkeypatch.setattr(load_test.call, "module", lambda _, name, args, variables: done.append(args["state"]))
    before = {number: signal.signal(number, lambda number, _: done.append(number)) for number in BOTH}
    action = load_test.ActionModule.__new__(load_test.ActionModule)
    try:
        with pytest.raises(load_test.Ended), action._ended_with_us({"id": "x"}, {}):
            signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
            for number in BOTH:
                os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, BOTH)
            done.append("never")
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert done in (["stop", signal.SIGINT, signal.SIGTERM], ["stop", signal.SIGTERM, signal.SIGTERM])


@pytest.mark.parametrize("failed", [0, 3])
def test_a_failure_returns_where_its_record_is_and_a_pass_the_record(failed):
    found = record.complete(measured([level(8, 400, failed=failed, errors={"HTTP 503": failed} if failed else {})]), [], [], 0)
    ended = {"record": found, "path": "/home/load/x.json", "not_kept": ""}
    told = load_test.ActionModule._told({"service": "tiny"}, "server1", ended)
    assert told["path"] == "/home/load/x.json"
    assert (told.get("failed", False), told.get("record")) == ((True, None) if failed else (False, found))
