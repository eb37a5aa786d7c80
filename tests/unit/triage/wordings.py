# ruff: noqa: E501  log lines are as long as they are
"""Further wordings of every cause, older and newer than the samples: (cause, is the root cause visible, text). None: as usual."""

from __future__ import annotations

TRACE = 'Traceback (most recent call last):\n  File "/opt/v/lib/python3.12/site-packages/vllm/{file}", line 10, in {function}\n    {code}\n'


def trace(file: str, function: str, last: str, code: str = "step()") -> str:
    return TRACE.format(file=file, function=function, code=code) + last


def engine(text: str, who: str = "EngineCore_DP0 pid=81", source: str = "core.py:710") -> str:
    return "\n".join(f"({who}) ERROR 11-29 10:00:00 [{source}] {line}" for line in text.splitlines())


WORDINGS = [
    (
        "request_context_too_long",
        None,
        "ValueError: This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
        "(112946 in the messages, 10000 in the completion). Please reduce the length of the messages or completion.",
    ),
    (
        "request_context_too_long",
        None,
        "openai.BadRequestError: Error code: 400 - {'object': 'error', 'message': 'max_tokens must be at least 1, got -186.', "
        "'type': 'BadRequestError', 'param': None, 'code': 400}",
    ),
    (
        "request_context_too_long",
        None,
        "{\"error\":{\"message\":\"'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length "
        'is 8192 tokens and your request has 200 input tokens","type":"BadRequestError","code":400}}',
    ),
    (
        "request_context_too_long",
        None,
        "ValueError: The decoder prompt (length 40123) is longer than the maximum model length of 32768. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
    ),
    (
        "request_validation_error",
        None,
        "{\"object\":\"error\",\"message\":\"[{'type': 'extra_forbidden', 'loc': ('body', 'user_id'), 'msg': 'Extra inputs are not "
        'permitted\', \'input\': \'x\'}]","type":"BadRequestError","param":null,"code":400}',
    ),
    (
        "request_validation_error",
        None,
        'HTTP/1.1 422 Unprocessable Entity\n{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required","input":{}}]}',
    ),
    (
        "request_validation_error",
        False,
        '(APIServer pid=1) INFO:     10.0.0.3:5012 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
    ),
    (
        "request_validation_error",
        False,
        '10.0.0.3 - - [29/Nov/2026:10:00:00 +0000] "POST /v1/completions HTTP/1.1" 422 91 "-" "python"',
    ),
    (
        "request_model_not_found",
        None,
        "openai.NotFoundError: Error code: 404 - {'object': 'error', 'message': 'The model `qwen` does not exist.', 'type': "
        "'NotFoundError', 'param': None, 'code': 404}",
    ),
    (
        "request_model_not_found",
        None,
        '{"object":"error","message":"The model `/data/models/a b` does not exist.","type":"NotFoundError","param":null,"code":404}',
    ),
    ("request_model_not_found", False, 'INFO:     10.0.0.3:5012 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found'),
    ("request_unauthorized", False, 'INFO:     10.0.0.3:5012 - "POST /v1/chat/completions HTTP/1.1" 403 Forbidden'),
    ("request_unauthorized", True, '{"error":{"message":"Invalid API key","type":"authentication_error","code":401}}'),
    ("request_unauthorized", None, "HTTP/1.1 401 Unauthorized"),
    ("port_in_use", None, "OSError: [Errno 98] Address already in use"),
    (
        "port_in_use",
        None,
        engine(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, "
            "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
    ),
    ("port_in_use", None, "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:41001')"),
    (
        "engine_dead_error_only",
        None,
        "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find the original error",
    ),
    (
        "engine_dead_error_only",
        None,
        "(APIServer pid=7) ERROR 11-29 10:00:00 [async_llm.py:420] AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: "
        "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    ),
    ("engine_dead_error_only", None, "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already."),
    (
        "engine_dead_error_only",
        None,
        "CRITICAL 11-29 10:00:00 [launcher.py:101] MQLLMEngine is already dead, terminating server process",
    ),
    (
        "orderly_stop_unexplained",
        None,
        "(APIServer pid=9) INFO 11-29 10:00:00 [launcher.py:110] Shutting down FastAPI HTTP server.\n(APIServer pid=9) INFO:     Shutting down\n"
        "(APIServer pid=9) INFO:     Application shutdown complete.",
    ),
    (
        "orderly_stop_unexplained",
        None,
        "(EngineCore pid=8) INFO 11-29 10:00:00 [core.py:1454] [shutdown] EngineCore: trigger received signal=SIGTERM\n"
        "(APIServer pid=7) INFO 11-29 10:00:01 [launcher.py:304] [shutdown] API server: shutting down FastAPI HTTP server",
    ),
    (
        "orderly_stop_unexplained",
        None,
        "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.\nINFO:     Finished server process [7]",
    ),
    (
        "engine_core_died_unexplained",
        None,
        "ERROR 11-29 10:00:00 [client.py:305] RuntimeError('Engine process (pid 4711) died.')",
    ),
    (
        "engine_core_died_unexplained",
        None,
        "2025-11-02 13:17:04,315 - vllm.v1.engine.core_client - ERROR - Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
        "2025-11-02 13:17:04,315 - vllm.v1.executor.multiproc_executor - INFO - Parent process exited, terminating worker",
    ),
    (
        "engine_core_died_unexplained",
        None,
        "(APIServer pid=1) ERROR 11-29 10:00:00 [core_client.py:564] Engine core proc EngineCore_DP1 died unexpectedly, shutting down client.\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    ),
    (
        "engine_start_failed_cause_elsewhere",
        None,
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    ),
    (
        "engine_start_failed_cause_elsewhere",
        None,
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ),
    (
        "engine_start_failed_cause_elsewhere",
        None,
        "(EngineCore_DP0 pid=81) ERROR 11-29 10:00:00 [core.py:708] EngineCore failed to start.\nRuntimeError: Engine core initialization "
        "failed. See root cause above.",
    ),
    (
        "engine_death_exit_zero",
        None,
        "Result=success\nNRestarts=0\nActiveState=inactive\nSubState=dead\nExecMainCode=1\nExecMainStatus=0",
    ),
    ("engine_death_exit_zero", None, "Id=vllm-a.service\nSubState=dead\nExecMainStatus=0\nNRestarts=0\nUnitFileState=enabled"),
    ("engine_death_exit_zero", None, "ExecMainStatus=0\nNRestarts=0\nSubState=dead"),
    (
        "scheduler_state_assertion",
        True,
        engine(trace("v1/core/sched/scheduler.py", "update_from_output", "AssertionError", "assert new_token_ids")),
    ),
    ("scheduler_state_assertion", True, engine(trace("v1/core/block_pool.py", "free_blocks", "KeyError: 'chatcmpl-55a1'"))),
    ("scheduler_state_assertion", False, engine(trace("v1/core/kv_cache_manager.py", "allocate_slots", "    ^^^^^^^^^^^"))),
    (
        "grammar_compile_crash",
        True,
        engine(
            trace(
                "v1/structured_output/request.py",
                "_check_grammar_completion",
                "RuntimeError: [10:00:00] grammar_parser.cc:100: EBNF parser error at line 1",
                "self._grammar = self._grammar.result(timeout=0.0001)",
            )
        ),
    ),
    (
        "grammar_compile_crash",
        True,
        engine(trace("v1/structured_output/backend_guidance.py", "compile_grammar", "ValueError: unknown keyword")),
    ),
    (
        "grammar_compile_crash",
        False,
        engine(
            trace(
                "v1/structured_output/backend_xgrammar.py",
                "compile_grammar",
                "",
                "ctx = self.compiler.compile_regex(grammar_spec)",
            )
        ),
    ),
    (
        "grammar_fsm_reject",
        None,
        "ERROR 11-29 10:00:00 [backend_xgrammar.py:148] Failed to advance FSM for request chatcmpl-1 for tokens 5. Please file an issue.",
    ),
    (
        "grammar_fsm_reject",
        None,
        "(EngineCore pid=8) ERROR 11-29 10:00:00 [backend_guidance.py:150] Failed to advance FSM for request cmpl-2 for tokens [1, 2].",
    ),
    ("grammar_fsm_reject", None, "E 10:00 failed to advance fsm for request 7"),
    (
        "rpc_timeout_sample_tokens",
        None,
        engine(trace("v1/executor/multiproc_executor.py", "get_response", "TimeoutError: RPC call to sample_tokens timed out.")),
    ),
    (
        "rpc_timeout_sample_tokens",
        None,
        "[rank0]: TimeoutError: RPC call to sample_tokens timed out.\nParent process exited, terminating worker",
    ),
    ("rpc_timeout_sample_tokens", None, "(EngineCore pid=1) ERROR TimeoutError: RPC call to sample_tokens\ntimed out."),
    (
        "rpc_timeout_execute_model",
        None,
        engine("TimeoutError: RPC call to execute_model timed out.\nEngineCore encountered a fatal error."),
    ),
    (
        "rpc_timeout_execute_model",
        None,
        "vllm-1  | TimeoutError: RPC call to execute_model timed out.\nvllm-1  | EngineDeadError: EngineCore encountered an issue.",
    ),
    (
        "rpc_timeout_execute_model",
        None,
        "(EngineCore pid=3) INFO 11-29 10:00:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second(s)\n"
        "(EngineCore pid=3) ERROR 11-29 10:05:00 [core.py:9] TimeoutError: RPC call to execute_model timed out.",
    ),
    ("rpc_timeout_other_method", None, "TimeoutError: RPC call to determine_available_memory timed out."),
    ("rpc_timeout_other_method", None, engine("TimeoutError: RPC call to check_health timed out.")),
    ("rpc_timeout_other_method", None, "Exception: RPC call to compile_or_warm_up_model timed out"),
    (
        "rpc_timeout_method_unseen",
        None,
        engine(trace("distributed/device_communicators/shm_broadcast.py", "acquire_read", "TimeoutError", "raise TimeoutError")),
    ),
    (
        "rpc_timeout_method_unseen",
        None,
        engine(
            trace("distributed/device_communicators/shm_broadcast.py", "dequeue", "", "with self.acquire_read(timeout) as buf:")
        ),
    ),
    (
        "rpc_timeout_method_unseen",
        None,
        engine(trace("v1/executor/multiproc_executor.py", "get_response", "", "status, result = w.worker_response_mq.dequeue(")),
    ),
    (
        "worker_stalled_shm_broadcast",
        None,
        "DEBUG 11-29 10:00:00 [shm_broadcast.py:456] No available shared memory broadcast block found in 60 second.",
    ),
    (
        "worker_stalled_shm_broadcast",
        None,
        "(Worker_TP1 pid=7) WARNING 11-29 10:00:00 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds.",
    ),
    ("worker_stalled_shm_broadcast", None, "No available shared memory broadcast block\nfound in 120 seconds."),
    (
        "worker_died_unexplained",
        None,
        "(EngineCore_DP0 pid=8) ERROR 11-29 10:00:00 [multiproc_executor.py:230] Worker proc VllmWorker-0 died unexpectedly (exit code: -15), shutting down executor.",
    ),
    (
        "worker_died_unexplained",
        None,
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, "
        "(2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error.",
    ),
    (
        "worker_died_unexplained",
        None,
        "ERROR 11-29 10:00:00 [ray_executor_v2.py:523] RayWorkerProc rank=3 died unexpectedly, shutting down executor.",
    ),
    (
        "worker_died_unexplained",
        None,
        "(Worker_TP0 pid=7) INFO 11-29 10:00:00 [multiproc_executor.py:520] Parent process exited, terminating worker",
    ),
    ("worker_died_unexplained", None, "vllm-worker-1 exited with code 143"),
    (
        "worker_killed_signal",
        None,
        "ERROR 11-29 10:00:00 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 6855 died, exit code: -9",
    ),
    ("worker_killed_signal", None, "ChildProcessError: worker died (-9)"),
    (
        "worker_killed_signal",
        None,
        "(EngineCore pid=8) ERROR 11-29 10:00:00 [multiproc_executor.py:315] Worker proc VllmWorker-1 died unexpectedly (exit code: -11), shutting down executor.",
    ),
    ("worker_killed_signal", None, "vllm-1 exited with code 137"),
    ("worker_killed_signal", None, "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):"),
    ("worker_killed_signal", None, "systemd[1]: vllm-a.service: Main process exited, code=dumped, status=6/ABRT"),
    ("cuda_illegal_memory_access", None, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    (
        "cuda_illegal_memory_access",
        None,
        "[rank1]:[E1129 10:00:00.1 ProcessGroupNCCL.cpp:1895] [PG ID 2 PG GUID 3 Rank 1] Process group watchdog thread terminated with exception: CUDA error: "
        "an illegal memory access was encountered\nWatchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
    ),
    (
        "cuda_illegal_memory_access",
        None,
        "Nov 29 10:00:00 gpu1 kernel: NVRM: Xid (PCI:0000:41:00): 13, pid=771, name=VLLM::Worker_TP, Graphics SM Warp Exception",
    ),
    (
        "cuda_illegal_memory_access",
        None,
        "[  244.1000] NVRM: Xid (PCI:0000:41:00): 31, pid='<unknown>', name=<unknown>, Ch 0000000c",
    ),
    ("gpu_memory_access_fault", None, "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7f. Reason: Unknown."),
    (
        "gpu_memory_access_fault",
        None,
        "(Worker_TP0 pid=3) Memory access fault by GPU node-9 on address (nil). Reason: Page not present or supervisor privilege.",
    ),
    ("gpu_memory_access_fault", None, "Nov 29 10:00:00 h bash[3]: Memory access fault by GPU node-2"),
    (
        "shutdown_leak_warning",
        None,
        "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 11 leaked semaphore objects to clean up at shutdown",
    ),
    (
        "shutdown_leak_warning",
        None,
        "resource_tracker: There appear to be 1 leaked shared_memory objects\nto clean up at shutdown",
    ),
    (
        "shutdown_leak_warning",
        None,
        "UserWarning: resource_tracker: There appear to be 3 leaked semlock objects to clean up at shutdown: {'/mp-x'}",
    ),
    (
        "kv_cache_too_small_for_max_model_len",
        None,
        "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the "
        "available KV cache memory (2.17 GiB). Based on the available memory, the estimated maximum model length is 15760.",
    ),
    (
        "kv_cache_too_small_for_max_model_len",
        None,
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (2096).",
    ),
    (
        "kv_cache_too_small_for_max_model_len",
        None,
        engine(
            "ValueError: To serve at least one request with the model's max seq len (8192), 1.0 GiB KV cache is needed, which is larger than "
            "the available KV cache memory (0.5 GiB)."
        ),
    ),
    (
        "kv_cache_no_blocks",
        None,
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine. See https://docs",
    ),
    ("kv_cache_no_blocks", None, "INFO 11-29 10:00:00 [executor_base.py:112] # cuda blocks: 0, # CPU blocks: 512"),
    (
        "kv_cache_no_blocks",
        None,
        "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:99] ValueError: No available memory\n(EngineCore pid=7) for the cache blocks.",
    ),
    (
        "oom_at_weight_load",
        None,
        engine(
            trace(
                "model_executor/model_loader/utils.py",
                "initialize_model",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 100.00 MiB.",
            )
        ),
    ),
    (
        "oom_at_weight_load",
        None,
        trace(
            "worker/model_runner.py",
            "load_model",
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 462.00 MiB (GPU 0; 23.69 GiB total capacity)",
        ),
    ),
    ("oom_at_weight_load", None, engine("RuntimeError: Failed to load weights: HIP out of memory. Tried to allocate 1.00 GiB")),
    (
        "oom_at_warmup",
        None,
        engine(
            trace(
                "v1/worker/gpu_model_runner.py",
                "profile_run",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.",
            )
        ),
    ),
    (
        "oom_at_warmup",
        None,
        engine(
            trace(
                "v1/worker/gpu_model_runner.py",
                "capture_model",
                "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
            )
        ),
    ),
    ("oom_at_warmup", None, "RuntimeError: CUDA out of memory occurred when warming up pooler (embed) with 512 dummy requests."),
    (
        "oom_at_runtime",
        None,
        engine(
            trace(
                "v1/worker/gpu_model_runner.py",
                "execute_model",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. including 324.00 MiB "
                "allocated in private pools (e.g., CUDA Graphs)",
            )
        ),
    ),
    (
        "oom_at_runtime",
        None,
        "ERROR 04-27 09:07:04 [engine.py:160] OutOfMemoryError('CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 44.53 GiB",
    ),
    (
        "oom_at_runtime",
        None,
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 63.98 GiB",
    ),
    (
        "startup_free_memory_too_low",
        None,
        "ValueError: Free memory on device cuda:0 (7.17/15.99 GiB) on startup is less than desired GPU memory utilization (0.92, 14.71 GiB).",
    ),
    (
        "startup_free_memory_too_low",
        None,
        engine(
            "ValueError: Free memory on device (20.0/23.65 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB)."
        ),
    ),
    (
        "startup_free_memory_too_low",
        None,
        "vllm-1  | ValueError: Free memory on device\nvllm-1  | (31.44/47.38 GiB) on startup is less than desired GPU\nvllm-1  | memory utilization (0.95, 45.01 GiB).",
    ),
    (
        "driver_too_old",
        None,
        "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver",
    ),
    ("driver_too_old", None, "RuntimeError: CUDA driver error: CUDA driver version is insufficient for CUDA runtime version"),
    ("driver_too_old", None, "cuda_utils: cudaErrorInsufficientDriver: CUDA driver version is insufficient"),
    (
        "nvml_driver_library_mismatch",
        None,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86",
    ),
    ("nvml_driver_library_mismatch", None, "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch."),
    (
        "nvml_driver_library_mismatch",
        None,
        "NVRM: API mismatch: the client has the version 570.133.07, but\nNVRM: this kernel module has the version 570.124.06.",
    ),
    ("gpu_off_bus", None, "Nov 29 10:00:00 gpu1 kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus."),
    ("gpu_off_bus", None, "NVRM: GPU 0000:01:00.0: GPU has fallen\noff the bus."),
    (
        "gpu_off_bus",
        None,
        "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.  Reboot the system to recover this GPU",
    ),
    (
        "gpu_hardware_error",
        None,
        "NVRM: Xid (PCI:0000:3d:00): 48, pid=77, An uncorrectable double bit error (DBE) has been detected on GPU",
    ),
    ("gpu_hardware_error", None, "[Fri Jan 29 23:42:34 2021] NVRM: Xid (PCI:0000:3d:00): 94, pid=9, Contained ECC error"),
    ("gpu_hardware_error", None, "kernel: NVRM: Xid (PCI:0000:3d:00): 119, pid=1, Timeout waiting for RPC from GSP0!"),
    (
        "gpu_reset_refused",
        None,
        "GPU Reset could not be performed\nThe following GPUs could not be reset:\n  GPU 00000000:01:00.0: In use by another client",
    ),
    ("gpu_reset_refused", None, "Resetting GPU 00000000:3B:00.0 is not supported.\nGPU 00000000:3B:00.0 could not be reset"),
    ("gpu_reset_refused", None, "GPU 00000000:C1:00.0 is currently in use by one or more other processes"),
    (
        "vram_held_no_process",
        None,
        "|   0  NVIDIA A100-SXM...   On   | 00000000:07:00.0 Off |                    0 |\n| N/A   30C    P0    60W / 400W |  30053MiB / 81920MiB |      0%      Default |\n"
        "|  No running processes found                                                 |",
    ),
    ("vram_held_no_process", None, "[6] NVIDIA A100 80GB PCIe | 52'C, 100 % | 10151 / 81920 MB | (null)"),
    ("vram_held_no_process", None, "pid, process_name, used_gpu_memory [MiB]\n396079, [Not Found], 73012 MiB"),
    (
        "nccl_watchdog_timeout",
        None,
        "[rank3]:[E1129 10:00:00.123 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4120, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    ),
    (
        "nccl_watchdog_timeout",
        None,
        "(Worker_TP1 pid=9) [rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective\n(Worker_TP1 pid=9) operation timeout: WorkNCCL(SeqNum=1",
    ),
    (
        "nccl_watchdog_timeout",
        None,
        "[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000)",
    ),
    (
        "nccl_unhandled_system_error",
        None,
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error, NCCL version 2.19.3",
    ),
    (
        "nccl_unhandled_system_error",
        None,
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    ),
    (
        "nccl_unhandled_system_error",
        None,
        engine("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    ),
    (
        "nccl_shm_too_small",
        None,
        "gpu1:221:221 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\ngpu1:221:221 [0] NCCL WARN Error while creating shared "
        "memory segment /dev/shm/nccl-aB3 (size 9637888)",
    ),
    (
        "nccl_shm_too_small",
        None,
        "RuntimeError: NCCL error: unhandled system error\nLast error:\nError while creating shared memory segment /dev/shm/nccl-EoOvZr (size 33030528), error: No space left "
        "on device (28)",
    ),
    ("nccl_shm_too_small", None, "NCCL WARN Error while creating shared memory\nsegment /dev/shm/nccl-xy (size 9637888)"),
    ("p2p_not_supported", None, "RuntimeError: CUDA error: peer access is not supported between these two devices"),
    (
        "p2p_not_supported",
        None,
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:336 'peer access is not supported between these two devices'",
    ),
    ("p2p_not_supported", None, "Cuda failure 217 'peer access is not supported\nbetween these two devices'"),
    (
        "nccl_unhandled_cuda_error",
        None,
        "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:275, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
    ),
    ("nccl_unhandled_cuda_error", None, "ncclUnhandledCudaError: Call to CUDA function failed."),
    ("nccl_unhandled_cuda_error", None, engine("RuntimeError: NCCL error: unhandled hip error")),
    (
        "weight_key_missing",
        None,
        trace(
            "model_executor/models/qwen2.py",
            "load_weights",
            "KeyError: 'layers.0.mlp.gate_up_proj.weight'",
            "param = params_dict[name]",
        ),
    ),
    ("weight_key_missing", None, engine("ValueError: There is no module or parameter named 'lm_head' in Qwen2ForCausalLM")),
    (
        "weight_key_missing",
        None,
        "ValueError: Following weights were not initialized from checkpoint: {'model.layers.3.self_attn.qkv_proj.weight'}",
    ),
    ("checkpoint_corrupt", None, "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
    (
        "checkpoint_corrupt",
        None,
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    ),
    (
        "checkpoint_corrupt",
        None,
        engine("safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"),
    ),
    (
        "lora_target_modules_mismatch",
        None,
        "ValueError: While loading /lora, expected target modules in {'qkv_proj', 'o_proj'} but received ['lm_head']. Please verify that the loaded LoRA module is correct",
    ),
    (
        "lora_target_modules_mismatch",
        None,
        "ValueError: While loading /lora, expected target\nmodules in ['q_proj'] but received ['x']",
    ),
    (
        "lora_target_modules_mismatch",
        None,
        engine("ValueError: While loading a, expected target modules in ['k_proj'] but received ['b.c']"),
    ),
    (
        "tokenizer_files_missing",
        None,
        "OSError: Can't load tokenizer for '/models/m'. If you were trying to load it from 'https://huggingface.co/models', make sure",
    ),
    (
        "tokenizer_files_missing",
        None,
        "OSError: Unable to load vocabulary from file. Please check that the provided vocabulary is accessible and not corrupted.",
    ),
    ("tokenizer_files_missing", None, "(APIServer pid=1) OSError: Can't load\n(APIServer pid=1) tokenizer for '/models/m'."),
    (
        "max_model_len_exceeds_model",
        None,
        "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768 or model_max_length=None in model's config.json).",
    ),
    (
        "max_model_len_exceeds_model",
        None,
        "Value error, User-specified max_model_len (9000) is greater than\nthe derived max_model_len (sliding_window=4096)",
    ),
    (
        "max_model_len_exceeds_model",
        None,
        "(APIServer pid=1)   Value error, User-specified max_model_len (131072) is greater than the derived max_model_len (max_seq_len=2048",
    ),
    (
        "visible_gpus_fewer_than_world_size",
        None,
        "ValueError: Tensor parallel size (4) is larger than the number of available GPUs (2).",
    ),
    (
        "visible_gpus_fewer_than_world_size",
        None,
        "Value error, World size (8) is larger than the number of available GPUs (4) in this node. If this is intentional",
    ),
    (
        "visible_gpus_fewer_than_world_size",
        None,
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
    ),
    (
        "env_var_collision",
        None,
        "ValueError: VLLM_PORT 'tcp://10.96.0.1:80' appears to be a URI. This may be caused by a Kubernetes service discovery issue",
    ),
    ("env_var_collision", None, engine("ValueError: VLLM_PORT 'tcp://10.1.1.1:8000' appears to be a URI.")),
    ("env_var_collision", None, "ValueError: VLLM_PORT 'tcp://10.1.1.1:8000'\nappears to be a URI."),
    ("nvcc_missing_jit", None, "sh: 1: nvcc: not found"),
    ("nvcc_missing_jit", None, "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"),
    ("nvcc_missing_jit", None, "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'"),
    (
        "hub_proxy_unreachable",
        None,
        "requests.exceptions.ProxyError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded (Caused by ProxyError('Unable to connect to proxy', "
        "OSError('Tunnel connection failed: 503 Service Unavailable')))\nOSError: Can't load tokenizer for 'Qwen/Qwen3-8B'",
    ),
    ("hub_proxy_unreachable", None, "httpx.ProxyError: [Errno 111] Connection refused"),
    (
        "hub_proxy_unreachable",
        None,
        "urllib3.exceptions.ProxyError: ('Cannot connect to proxy.', NewConnectionError('...: [Errno 113] No route to host'))",
    ),
    (
        "hub_offline_cache_miss",
        None,
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the requested files in the local cache.",
    ),
    (
        "hub_offline_cache_miss",
        None,
        "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/a/b: offline mode is enabled.",
    ),
    (
        "hub_offline_cache_miss",
        None,
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
    ),
    ("hub_access_denied", None, "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-0)"),
    (
        "hub_access_denied",
        None,
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/meta-llama/x/resolve/main/config.json",
    ),
    (
        "hub_access_denied",
        None,
        "OSError: You are trying to access a gated repo.\n401 Client Error: Unauthorized for url: https://huggingface.co/m/resolve/main/config.json",
    ),
    (
        "model_arch_inspect_failed",
        None,
        "ValueError: Model architectures ['Qwen2ForCausalLM'] failed to be inspected. Please check the logs for more details.",
    ),
    (
        "model_arch_inspect_failed",
        None,
        "ERROR 11-29 10:00:00 [registry.py:346] Error in inspecting model architecture 'Qwen3VLForConditionalGeneration'",
    ),
    (
        "model_arch_inspect_failed",
        None,
        "ValueError: Model architectures ['MistralForCausalLM'] are not supported for now. Supported architectures: dict_keys(['AquilaModel',\n'MixtralForCausalLM',\n'MistralForCausalLM', 'MptForCausalLM'])",
    ),
    (
        "model_arch_unsupported",
        None,
        "ValueError: Model architectures ['Zamba9ForCausalLM'] are not supported for now. Supported architectures: ['AquilaModel', 'LlamaForCausalLM']",
    ),
    (
        "model_arch_unsupported",
        None,
        "ValueError: Model architectures ['FooModel'] are not supported for now. Supported architectures: dict_keys(['AquilaModel'])",
    ),
    (
        "model_arch_unsupported",
        None,
        engine("ValueError: Model architectures ['BarModel'] are not supported for now. Supported architectures: ['A']"),
    ),
    (
        "rope_config_key_missing",
        None,
        trace("model_executor/layers/rotary_embedding.py", "get_rope", "KeyError: 'type'", 'scaling_type = rope_scaling["type"]'),
    ),
    ("rope_config_key_missing", None, "KeyError: 'rope_theta'"),
    ("rope_config_key_missing", None, "KeyError: \"Missing required keys in `rope_scaling` for 'rope_type'='yarn': {'factor'}\""),
    ("transformers_api_incompatible", None, "AttributeError: 'Qwen3Config' object has no attribute 'rope_theta'"),
    ("transformers_api_incompatible", None, "TypeError: XLMRobertaModel.__init__() got an unexpected keyword argument 'dtype'"),
    (
        "transformers_api_incompatible",
        None,
        "ImportError: cannot import name 'AutoModelForVision2Seq' from 'transformers' (/v/lib/transformers/__init__.py)",
    ),
    ("transformers_api_incompatible", None, "AttributeError: GemmaTokenizerFast has no attribute\nall_special_tokens_extended"),
    (
        "transformers_too_old_for_model",
        None,
        "ValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not recognize this architecture.",
    ),
    (
        "transformers_too_old_for_model",
        None,
        "Value error, The checkpoint you are trying to load has model type\n  `gemma3` but Transformers does not\n  recognize this architecture.",
    ),
    (
        "transformers_too_old_for_model",
        None,
        engine("has model type 'glm4v' but Transformers does not recognize this architecture"),
    ),
    ("glibc_too_old", None, "ImportError: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by /v/vllm/_C.abi3.so)"),
    ("glibc_too_old", None, "python3: /lib/x86_64-linux-gnu/libm.so.6: version 'GLIBC_2.35' not found (required by x.so)"),
    (
        "glibc_too_old",
        None,
        'WARNING 11-29 10:00:00 [interface.py:222] Failed to import from vllm._C: ImportError("/lib/x86_64-linux-gnu/libc.so.6:\nversion `GLIBC_2.34\' not found")',
    ),
    (
        "torch_abi_mismatch",
        None,
        "ImportError: /v/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    ),
    (
        "torch_abi_mismatch",
        None,
        "WARNING 11-29 10:00:00 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('/v/_C.abi3.so: undefined symbol: _ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv')",
    ),
    ("torch_abi_mismatch", None, "ImportError: /v/vllm/_C.abi3.so: undefined\nsymbol: cuTensorMapEncodeTiled"),
    (
        "no_kernel_image_for_arch",
        None,
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ),
    (
        "no_kernel_image_for_arch",
        None,
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
    ),
    ("no_kernel_image_for_arch", None, "RuntimeError: CUDA error: no kernel image is available\nfor execution on the device"),
    (
        "hip_no_binary_for_arch",
        None,
        "RuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously reported",
    ),
    ("hip_no_binary_for_arch", None, "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"),
    (
        "hip_no_binary_for_arch",
        None,
        "torch.AcceleratorError: HIP error: no kernel image is available for execution on the device",
    ),
    (
        "dtk_version_undetected",
        True,
        trace("../lightop/__init__.py", "get_dtk_version", "AttributeError: 'NoneType' object has no attribute 'split'"),
    ),
    (
        "dtk_version_undetected",
        True,
        engine(trace("../lmslim/__init__.py", "get_dtk_version", "TypeError: 'NoneType' object is not subscriptable")),
    ),
    (
        "dtk_version_undetected",
        False,
        engine(trace("../lightop/__init__.py", "get_dtk_version", "", "dtk_version = ''.join(dtk_version.split('.'))")),
    ),
    (
        "host_oom_killed",
        None,
        "Nov 29 10:00:00 gpu1 kernel: Memory cgroup out of memory: Killed process 771 (VLLM::EngineCor) total-vm:1kB",
    ),
    ("host_oom_killed", None, '"State": {"Status": "exited", "OOMKilled": true, "ExitCode": 137}'),
    ("host_oom_killed", None, "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137"),
    (
        "host_oom_killed",
        None,
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory. (raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM)",
    ),
    ("zombie_holds_gpu_memory", None, "root   771  0.0  0.0      0     0 ?   Zl   10:00   0:00 [VLLM::EngineCor] <defunct>"),
    ("zombie_holds_gpu_memory", None, "  PID  PPID STAT CMD\n  771     1 Z    VLLM::Worker_TP"),
    ("zombie_holds_gpu_memory", None, "Name:\tVLLM::Worker_TP\nState:\tZ (zombie)"),
    (
        "orphan_engine_holds_gpu_memory",
        None,
        "|    0   N/A  N/A          771      C   VLLM::EngineCore                      30053MiB |",
    ),
    (
        "orphan_engine_holds_gpu_memory",
        None,
        "COMMAND   PID USER   FD   TYPE DEVICE SIZE/OFF NODE NAME\nVLLM::Wor 771 llm   mem    CHR  195,0          703 /dev/nvidia0",
    ),
    (
        "orphan_engine_holds_gpu_memory",
        None,
        "                     USER        PID ACCESS COMMAND\n/dev/nvidia0:        llm        771 F...m VLLM::Worker_TP",
    ),
    (
        "process_unkillable_in_driver",
        None,
        "cat /proc/771/stack\n[<0>] uvm_va_space_destroy+0x2a4/0x6f0 [nvidia_uvm]\n[<0>] uvm_release.isra.0+0x7c/0xb0 [nvidia_uvm]",
    ),
    (
        "process_unkillable_in_driver",
        None,
        "[<0>] amdgpu_vm_wait_idle+0x30/0x50 [amdgpu]\n[<0>] kfd_process_wq_release+0x20/0x40 [amdgpu]",
    ),
    ("process_unkillable_in_driver", None, "VLLM::EngineCore (pid 771) is still in state D 30 s after SIGKILL"),
]
