"""What a cause is, and the steps that many causes share."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple


class Cause(NamedTuple):
    """One id of the vocabulary. Ids are never renamed.

    `visible`: does the line that this cause is known by say why? `unmute`: how a cause that was swallowed is made visible.
    """

    id: str
    layer: Optional[str]
    meaning: str
    visible: bool
    gpu: str
    steps: Tuple[str, ...]
    unmute: str = ""


#: Every layer that an answer can name. None: nothing was found.
LAYERS = (
    "client_request",
    "api_server",
    "scheduler",
    "executor_rpc",
    "worker_runtime",
    "kv_cache_memory",
    "device_memory",
    "driver",
    "interconnect",
    "model_artifact",
    "environment",
    "network_hub",
    "dependency",
    "host_os",
)

KEEP_LOGS = (
    "Keep the whole logs of the API server, EngineCore and every worker before any restart, and read upwards to the first error: "
    "it often stands far above"
)
KERNEL_LOG = (
    "Read the kernel log of that minute on the host, not in the container: Xid, amdgpu or hydcu faults, oom-kill, segfault"
)
GUARDED = (
    "Stop with the guarded teardown: holders of the device files listed first, only processes proven to be of this instance "
    "ended "
    "(TERM, wait, then KILL of that PID), and no new start before the memory of each card has fallen"
)
NO_ACTION = "Nothing to do on the server: the engine is healthy. Do not restart it"
#: Switches that let a first error be seen the next time.
UNMUTE_ENGINE = (
    "To see it the next time: VLLM_LOGGING_LEVEL=DEBUG and PYTHONFAULTHANDLER=1 in the service's environment, logs of all starts "
    "kept, and the stacks of all processes dumped before a stop"
)
UNMUTE_DEVICE = (
    "To see the guilty kernel: one run, outside of service hours, with CUDA_LAUNCH_BLOCKING=1 (AMD_SERIALIZE_KERNEL=3 on "
    "ROCm and "
    "DTK); it is slow"
)
UNMUTE_NCCL = "To see the call: one start with NCCL_DEBUG=INFO (also read by RCCL), and the WARN line above the error"
UNMUTE_BODY = (
    "The reason is in the body of the reply, not in this line: replay one such request with curl, or read the gateway's log"
)
