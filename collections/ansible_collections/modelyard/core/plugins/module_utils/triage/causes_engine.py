"""Causes in the scheduler, the calls between the processes and the workers."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.vocabulary import (
    GUARDED,
    KEEP_LOGS,
    KERNEL_LOG,
    UNMUTE_DEVICE,
    UNMUTE_ENGINE,
    Cause,
)

CAUSES: Tuple[Cause, ...] = (
    Cause(
        "scheduler_state_assertion",
        "scheduler",
        "an assertion on the scheduler's own bookkeeping failed",
        True,
        "unknown",
        (
            KEEP_LOGS,
            "Note the release and its features (async scheduling, speculative decoding, prefix caching, connectors) and "
            "look for a "
            "release that has it repaired",
            "For the time being turn off the feature that the trace names, and restart after the guarded teardown; the "
            "hardware is not "
            "at fault",
        ),
        "The exception line below the last frame was cut off: get it from the whole log",
    ),
    Cause(
        "grammar_compile_crash",
        "scheduler",
        "a grammar of a structured output was admitted, failed to compile in the engine and took the engine down",
        True,
        "no",
        (
            "Find the schema or regex (the last structured request before the crash) and refuse it at the gateway",
            "Use a release that fails only the request, or pin one backend of structured outputs",
            "Restart after the guarded teardown, and run the JSON Schema step of the acceptance before opening traffic",
        ),
        "The exception line below the last frame was cut off: get it from the whole log",
    ),
    Cause(
        "grammar_fsm_reject",
        "scheduler",
        "the grammar's matcher refuses tokens of a running request",
        True,
        "unknown",
        (
            "The engine may well be alive: ask /health and one plain request first, no restart by reflex",
            "Turn off async scheduling or speculative decoding for structured traffic, or pin the other backend, and compare",
            "Note the versions of model, tokenizer and backend; wrong output, not only errors, is possible",
        ),
    ),
    Cause(
        "rpc_timeout_sample_tokens",
        "executor_rpc",
        "EngineCore waited too long for a worker's answer to sample_tokens",
        False,
        "yes",
        (
            "Take it as a symptom: a worker was slow, stuck in a collective or a kernel, or gone",
            KEEP_LOGS,
            KERNEL_LOG,
            "Look at each worker: still there? state R, D or Z? its stack if it spins? A card at 100 % without progress "
            "points to a "
            "hung collective",
            GUARDED,
            "Try with one request at a time (max-num-seqs 1, no structured output), then add one factor after the other",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "rpc_timeout_execute_model",
        "executor_rpc",
        "EngineCore waited too long for a worker's answer to execute_model",
        False,
        "yes",
        (
            "Take it as a symptom: look for the worker's own error or a long compile or JIT step first",
            KEEP_LOGS,
            KERNEL_LOG,
            GUARDED,
            "Raise the limit of the call only when the worker is shown to be busy with real work (compile at first use)",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "rpc_timeout_other_method",
        "executor_rpc",
        "EngineCore waited too long for a worker's answer to another call",
        False,
        "yes",
        (
            "Take it as a symptom, and note which call it was: one of the start is often only slow, one in service is not",
            KEEP_LOGS,
            KERNEL_LOG,
            GUARDED,
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "rpc_timeout_method_unseen",
        "executor_rpc",
        "EngineCore waited too long for a worker; which call it was is not shown",
        False,
        "yes",
        ("Get the lines that follow: they name the call", KEEP_LOGS, KERNEL_LOG, GUARDED),
        UNMUTE_ENGINE,
    ),
    Cause(
        "worker_stalled_shm_broadcast",
        "executor_rpc",
        "a reader of the queue between the processes has made no progress for minutes; not a failure yet",
        False,
        "yes",
        (
            "No restart on the first such line: compiling, loading weights or quantising the cache can take minutes",
            "If it goes on past the usual time of a start, look at the cards' utilisation and the workers' states and stacks",
            "With several cards at 100 % and no tokens suspect the interconnect and run the tensor and all-reduce test",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "worker_died_unexplained",
        "worker_runtime",
        "a worker disappeared; the reason is not in the log",
        False,
        "yes",
        (
            KERNEL_LOG,
            "Code -9 or a line of oom-kill: the host ran out of memory. -15: something, often the executor itself, ended "
            "it; that is "
            "not the cause",
            KEEP_LOGS,
            GUARDED,
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "worker_killed_signal",
        "worker_runtime",
        "a worker was ended by a signal whose number is shown",
        False,
        "yes",
        (
            "Read the number: 9 killed (look for an oom-kill), 6 abort, 7 bus error (often /dev/shm), 8 arithmetic, 11 segfault",
            KERNEL_LOG,
            KEEP_LOGS,
            GUARDED,
        ),
        "To see where: PYTHONFAULTHANDLER=1 and a core size above 0 (LimitCORE), and who sends signals in the supervisor's log",
    ),
    Cause(
        "cuda_illegal_memory_access",
        "worker_runtime",
        "a kernel touched memory it must not; every later CUDA call of the process fails",
        False,
        "yes",
        (
            "The frame that is printed is often not the guilty one: such errors are told later than they happen",
            KERNEL_LOG,
            "Xid 31 or 13 with the same PID points to software; Xid 48, 63, 64, 79, 94, 95 or counts of ECC errors point to "
            "hardware: "
            "use that card no further and call its admin",
            GUARDED,
            "Try once in eager mode; if it comes again, bisect: attention backend, custom all-reduce, quantisation kernel, "
            "release",
        ),
        UNMUTE_DEVICE,
    ),
    Cause(
        "gpu_memory_access_fault",
        "worker_runtime",
        "page fault by a GPU of ROCm or DTK; the process aborts",
        False,
        "yes",
        (
            "Find the card of that node number with rocminfo or hy-smi",
            KERNEL_LOG,
            "Try with graph capture off and kernels serialised to find the kernel; compare driver and runtime with the "
            "supported pairs",
            "Run the tensor test on that card alone; if a trivial tensor fails, take the card out and call its admin",
        ),
        UNMUTE_DEVICE,
    ),
    Cause(
        "shutdown_leak_warning",
        "worker_runtime",
        "Python's resource_tracker complains at the exit; harmless by itself",
        False,
        "unknown",
        (
            "Not a cause: look for what ended the process before it",
            "After an unclean end list /dev/shm for segments of this service's user, and remove only those that no process "
            "has open",
            "See that the cards' memory is free before the next start",
        ),
        UNMUTE_ENGINE,
    ),
    Cause(
        "unknown_error",
        None,
        "the first error is shown, and no rule here knows it",
        True,
        "unknown",
        (
            "Read the error itself: it is the first one of the log. Its layer is that of the process or the file that raised it",
            KEEP_LOGS,
            "Look for the text in the engine's release notes and issues before changing anything",
        ),
    ),
    Cause(
        "nothing_found",
        None,
        "no line here tells of a failure",
        False,
        "unknown",
        (
            "Nothing in this text tells of a failure; that does not prove that there was none",
            "Read the logs of all processes and all starts, not only the last one, and the kernel log of that time",
            "Ask /health and one real completion before calling it dead or alive",
        ),
        UNMUTE_ENGINE,
    ),
)
