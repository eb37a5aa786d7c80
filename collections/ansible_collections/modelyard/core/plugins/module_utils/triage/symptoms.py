"""Which words are symptoms, and which lines only add to a cause. Data, as the rules of first errors are."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.rules import Rule, rule

_WORKER = r"(?:worker|container|pod|rank ?\d|child|serving|vllm-\d|vllm|model ?executor)"

#: Symptoms: they say that something had failed. Their order is that of the cause that is named when there is nothing better.
SYMPTOMS: Tuple[Rule, ...] = (
    rule(
        "worker_killed_signal",
        "exited died exit",
        rf"{_WORKER}.{{0,80}}(?:exited|died|exit ?code|terminated|exit "
        rf"status|killed).{{0,60}}?(?:code|status|with|signal|[:=(])[ :=]{{0,4}}"
        r"(?P<code>-(?!15\b)\d{1,2}|1(?:29|3\d|4[0124-9]|5\d))\b",
    ),
    rule("worker_killed_signal", "killed dumped", r"code=(?:killed|dumped), status=(?P<code>(?!15\b)\d+)/"),
    rule(
        "worker_killed_signal",
        "segmentation",
        r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted|Floating point exception)|"
        r"Segmentation fault(?: \(core dumped\)|$|:)",
    ),
    rule("worker_killed_signal", "segfault", r"Segfault encountered|segfault at [0-9a-f]+ ip"),
    rule(
        "worker_killed_signal",
        "sigsegv sigabrt sigbus sigfpe",
        r"(?:received|caught|by|\*\*\*) (?:signal )?(?:SIGSEGV|SIGABRT|SIGBUS|SIGFPE)",
    ),
    rule(
        "worker_killed_signal",
        "sigkill signal",
        rf"{_WORKER}.{{0,60}}(?:killed|terminated|died|ended)[^.]{{0,30}}(?:signal "
        rf"(?:9|6|7|8|11)\b|SIGKILL|SIGSEGV|SIGABRT|SIGBUS)",
    ),
    rule(
        "worker_died_unexplained",
        "died",
        r"(?:Worker(?: proc(?:ess)?)? \S+|VllmWorker\S*|worker process|WorkerProc\S*|A worker)[^.]{0,40} died(?: or was killed)?",
    ),
    rule("worker_died_unexplained", "exit", rf"{_WORKER}[^.]{{0,60}}(?:exited|exit ?code|exit status)[^.]{{0,40}}?(?:-15|143)\b"),
    rule("engine_core_died_unexplained", "died", r"Engine(?: core|Core)?(?: proc(?:ess)?)?[ _(]\S{0,40}[^.]{0,30}died"),
    rule("rpc_timeout_sample_tokens", "timed", r"RPC call to sample_tokens timed out"),
    rule("rpc_timeout_execute_model", "timed", r"RPC call to execute_model timed out"),
    rule("rpc_timeout_other_method", "timed", r"RPC call to (?!sample_tokens|execute_model)[A-Za-z_]\w* timed out"),
    rule("rpc_timeout_method_unseen", "timeouterror", r"^TimeoutError:?$", None, r"shm_broadcast|get_response|acquire_read"),
    rule("rpc_timeout_method_unseen", "dequeue acquire_read", r"mq\.dequeue\(timeout|self\.acquire_read\(timeout"),
    rule("engine_start_failed_cause_elsewhere", "initialization", r"Engine core initialization failed"),
    rule("engine_start_failed_cause_elsewhere", "failed", r"Engine process failed to start"),
    rule("engine_dead_error_only", "enginedeaderror", r"(?:MQ|Async)?EngineDeadError"),
    rule(
        "engine_dead_error_only",
        "dead background",
        r"Engine(?:Core)? is (?:already )?dead|Background loop (?:has errored|is stopped)|is already dead, terminating",
    ),
    rule(
        "engine_dead_error_only",
        "encountered failed exception",
        r"EngineCore encountered (?:an issue|a fatal)|EngineCore failed to start|EngineCore hit an exception",
    ),
    rule("worker_died_unexplained", "parent", r"Parent process exited, terminating worker"),
    rule("worker_stalled_shm_broadcast", "broadcast", r"No available shared memory broadcast block found"),
    rule("orderly_stop_unexplained", "shutting", r"Shutting down FastAPI HTTP server"),
    rule("orderly_stop_unexplained", "shutdown", r"trigger received signal ?= ?SIG(?:TERM|INT)|^Application shutdown complete"),
    rule("shutdown_leak_warning", "leaked", r"There appear to be \d+ leaked"),
)

#: Lines that are only read for what they add to a cause: (the cause, the words, the pattern).
SUPPORT: Tuple[Rule, ...] = (
    rule("kv_cache_too_small_for_max_model_len", "available", r"Available KV cache memory: ?-?[\d.]+"),
    rule("kv_cache_too_small_for_max_model_len", "estimated", r"the estimated maximum model length is \d+"),
    rule(
        "request_context_too_long", "request", r"(?:your request has|you requested|in the messages|prompt contains)[^.]{0,60}\d+"
    ),
    rule("nccl_watchdog_timeout", "completed", r"last completed NCCL work: \d+"),
    rule("host_oom_killed", "invoked", r"invoked oom-killer"),
    rule("host_oom_killed", "killed", r"Kill(?:ed)? process \d+"),
    rule("zombie_holds_gpu_memory", "supported client", r"GPU [0-9A-F:.]+: (?:Not Supported|In use by another client)"),
    rule("gpu_reset_refused", "supported", r"GPU [0-9A-F:.]+: Not Supported"),
    rule("process_unkillable_in_driver", "vllm:: enginecor", r"^\d+\s.*(?:VLLM::|EngineCor)"),
    rule("nvml_driver_library_mismatch", "mismatch", r"API mismatch: the client has"),
)
