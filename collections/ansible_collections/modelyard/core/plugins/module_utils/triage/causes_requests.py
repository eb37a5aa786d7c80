"""Causes in requests and in the API server."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.vocabulary import (
    KEEP_LOGS,
    KERNEL_LOG,
    NO_ACTION,
    UNMUTE_BODY,
    UNMUTE_ENGINE,
    Cause,
)

CAUSES: Tuple[Cause, ...] = (
    Cause(
        "request_context_too_long",
        "client_request",
        "prompt and wanted output do not fit into the served max_model_len",
        True,
        "no",
        (
            NO_ACTION,
            "Compare the number of prompt tokens in the message with max_model_len of /v1/models",
            "Shorten the prompt or lower max_tokens. Only if the use needs it, plan a redeploy with a larger max-model-len, "
            "after a "
            "look at the KV cache's budget and the model's own limit",
        ),
    ),
    Cause(
        "request_validation_error",
        "client_request",
        "the body does not match the API: wrong type, missing or extra field, or a feature that was not enabled",
        True,
        "no",
        (
            NO_ACTION,
            "Read the body of the reply, not the access log: its loc path names the field",
            "Correct that field in the client (a string where one is wanted, no null fields) and replay one request with curl",
        ),
        UNMUTE_BODY,
    ),
    Cause(
        "request_model_not_found",
        "client_request",
        "the request names a model that the server does not serve",
        True,
        "no",
        (
            NO_ACTION,
            "GET /v1/models and use that id exactly, or set served-model-name in the inventory so that clients and gateway agree",
            "If it happens only through the gateway, see that all instances serve the same id",
        ),
        UNMUTE_BODY,
    ),
    Cause(
        "request_unauthorized",
        "client_request",
        "API key missing or wrong",
        False,
        "no",
        (
            "Nothing to do on the engine. Do not restart it",
            "See whether a key is set where nobody expects it: VLLM_API_KEY inherited from the shell that launched it",
            "Let gateway and probes send the Bearer header; never print the key into a log",
        ),
        UNMUTE_BODY,
    ),
    Cause(
        "port_in_use",
        "api_server",
        "a port that the service wants is already taken",
        True,
        "no",
        (
            "Find the listener (ss -ltnp) and name its owner before touching it: another tenant, or a live older instance",
            "A leftover of this instance: guarded teardown. Anything else: another port in the inventory",
            "If the port is a random one (rendezvous), look at the range of ephemeral ports as well",
        ),
    ),
    Cause(
        "engine_dead_error_only",
        "api_server",
        "the API server says that the engine is dead; the first error is not here",
        False,
        "unknown",
        (
            KEEP_LOGS,
            "Look for the first ERROR of EngineCore or a worker, and at the kernel log of that time; EngineDeadError itself "
            "says nothing",
            "See what is left (holders of device files, memory of each card) before a restart",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "orderly_stop_unexplained",
        "api_server",
        "the server shut down in order, as on a signal; who asked for it is not in this log",
        False,
        "no",
        (
            "Nothing failed in this log: do not call it a crash and do not restart by reflex",
            "Find who sent the signal in that second: the unit's journal, container events, the supervisor's or "
            "orchestrator's log "
            "(health probe, idle stop, update)",
            "If nobody meant it, correct the setting of that supervisor; see that the cards' memory is free before the next "
            "start",
        ),
        "Who sent a signal is recorded with `auditctl -a always,exit -S kill` or a supervisor that logs its stops",
    ),
    Cause(
        "engine_core_died_unexplained",
        "api_server",
        "the engine process vanished, and what watches it says no more than that",
        False,
        "no",
        (
            KEEP_LOGS,
            KERNEL_LOG,
            "Look at the exit status of the engine process if the supervisor kept it; a negative number is a signal",
            "Right after an intended stop the line is harmless: compare with the time of the stop before raising an alarm",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "engine_start_failed_cause_elsewhere",
        "api_server",
        "the start's wrapper error, which points to an earlier trace",
        False,
        "unknown",
        (
            KEEP_LOGS,
            "The exit code in braces is a clue only: {} and 1 say nothing, a negative number is a signal",
            "Leave out lines about leaked shared_memory or semaphores: they follow from the failed start",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "engine_death_exit_zero",
        "api_server",
        "the engine died, but the server ended with status 0, so that the supervisor did not start it again",
        False,
        "unknown",
        (
            "Do not trust the unit's exit status: /health and one real completion show whether it lives",
            "Find the engine's first error in the log before a restart",
            "Let the unit restart always, with a limit of the rate, or let the health timer do it after the guarded teardown",
        ),
        UNMUTE_ENGINE,
    ),
)
