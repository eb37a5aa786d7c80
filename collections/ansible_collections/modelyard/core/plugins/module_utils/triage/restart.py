"""Is a restart of use after a cause, and what must be true before it? A pure function."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.triage import order

#: Such errors come again at each start until somebody has corrected what they name.
_COMES_AGAIN = ("kv_cache_memory", "device_memory", "driver", "model_artifact", "environment", "network_hub", "dependency")


def advice(answer: Mapping[str, Any]) -> str:
    """One sentence about a restart."""
    cause, layer = answer["cause"], answer["layer"]
    if cause == "nothing_found":
        return "nothing here asks for one"
    if layer == "client_request" or cause in ("grammar_fsm_reject", "shutdown_leak_warning", "worker_stalled_shm_broadcast"):
        return "of no use: the engine may well be healthy; ask it first"
    if cause in order.HELD:
        return "of no use, and it would fail: something holds a card that a new start needs"
    if cause == "oom_at_runtime":
        return "of use after the guarded teardown; the same kind of request will end the engine again"
    if layer in _COMES_AGAIN or cause == "port_in_use":
        return "of no use before what the lines name has been corrected: it would fail again"
    return "of use after the guarded teardown, when nothing of the old start is left on the cards; keep the logs first"
