"""Which words name which cause. Data: the first rule of a cause that fits a line counts, and a cause is known by its first line.

A blank in a pattern stands for any white space or none, for lines are broken anywhere. Every rule has words of which a line must
hold one before its pattern is tried, in small letters; the reader of large logs looks for those alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Pattern, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.causes import CAUSES


class Rule(NamedTuple):
    """`visible`: when this line says more or less than its cause usually does. `frames`: what the trace above it must hold."""

    cause: str
    words: Tuple[str, ...]
    pattern: Pattern[str]
    visible: bool
    frames: Optional[Pattern[str]]


def compiled(pattern: str) -> Pattern[str]:
    """A pattern with its blanks made any white space or none, small and capital letters alike."""
    return re.compile(pattern.replace(" ", r"\s*"), re.IGNORECASE)


def rule(cause: str, words: str, pattern: str, visible: Optional[bool] = None, frames: str = "") -> Rule:
    """One rule; see the head of this file."""
    seen = CAUSES[cause].visible if visible is None else visible
    return Rule(cause, tuple(words.split()), compiled(pattern), seen, compiled(frames) if frames else None)


_ENGINE_NAME = r"(?:vllm|enginecor|engine_cor|engine ?core|worker|ray::|sglang|pt_main_thread|python)"
_OOM = (
    r"(?:(?:CUDA|HIP|MUSA|XPU|NPU|device|GPU)[^.;]{0,24}out of memory|torch[\w.]*OutOfMemoryError|(?:hip|cuda)ErrorOutOfMemory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|HIP_ERROR_OUT_OF_MEMORY|(?:CUBLAS|HIPBLAS|CUDNN|rocblas)\w*_ALLOC_FAILED)"
)
_LOADING = r"create_weights|load_model|load_weights|model_loader|initialize_model|process_weights_after_loading"
_WARMING = (
    r"profile_run|_dummy_run|_dummy_sampler_run|determine_available_memory|determine_num_available_blocks|capture_model"
    r"|compile_or_warm_up|kernel_warmup|_capture_cudagraphs|profile_cudagraph"
)

RULES: Tuple[Rule, ...] = (
    # The requests of clients.
    rule(
        "request_context_too_long", "context length", r"maximum (?:context|input|sequence|model) length (?:is|of) \d+(?: tokens)?"
    ),
    rule("request_context_too_long", "max_tokens max_completion_tokens", r"max_(?:completion_)?tokens\W.{0,60}is too large"),
    rule(
        "request_context_too_long", "max_tokens max_completion_tokens", r"max_(?:completion_)?tokens must be at least 1, got -\d+"
    ),
    rule(
        "request_context_too_long",
        "longer exceeds",
        r"(?:decoder |encoder )?prompt (?:\(length \d+\) )?is (?:longer|too long)[^.]{0,60}"
        r"(?:max_model_len|maximum model length|than the maximum)|(?:input|prompt)[^.]{0,40} exceeds (?:the )?(?:model.s )?max",
    ),
    rule("request_model_not_found", "exist", r"The model [`'\"\\]+[^`'\"\\]{1,200}[`'\"\\]+ does not exist"),
    rule(
        "request_model_not_found", "notfounderror", r"NotFoundError\W.{0,80}(?:code|error code)\W{1,6}404|Error code: 404", True
    ),
    rule(
        "request_unauthorized",
        "invalid incorrect authenticationerror",
        r"(?:Invalid|Incorrect) API[ _-]?key|AuthenticationError",
        True,
    ),
    rule("request_validation_error", "badrequesterror", r"BadRequestError"),
    rule("request_validation_error", "code", r"(?:error )?code[\"'\\]{0,3}: ?(?:400|422)\b"),
    rule(
        "request_validation_error", "loc' loc\" loc\\", r"[\"'\\]loc[\"'\\]{1,3}: ?[\[(] ?[\"'\\]{1,3}(?:body|query|path|header)"
    ),
    rule("request_validation_error", "requires", r"requires --enable-auto-tool-choice|requires --\S+ .{0,60}to be set"),
    rule(
        "request_validation_error",
        "should permitted required",
        r"(?:Input should be|Extra inputs are not permitted|Field required)\b.{0,40}"
        r"(?:input|type|loc|body)[\"'\\:]",
    ),
    # Access log, without a body.
    rule("request_unauthorized", "http/1", r"HTTP/[12](?:\.\d)?[\"\s]* 40[13]\b", False),
    rule("request_unauthorized", "unauthorized", r"(?:^|[\"\s])401 Unauthorized|[\"']error[\"']: ?[\"']Unauthorized", False),
    rule("request_model_not_found", "http/1", r"/v\d/\S* HTTP/[12](?:\.\d)?[\"\s]* 404\b", False),
    rule("request_model_not_found", "http/1", r"(?:POST|PUT) \S+ HTTP/[12](?:\.\d)?[\"\s]* 404\b", False),
    rule("request_validation_error", "http/1", r"HTTP/[12](?:\.\d)?[\"\s]* 4(?!0[134]\b|29\b|99\b)\d\d\b", False),
    rule("request_validation_error", "bad unprocessable", r"(?:^|[\"\s])400 Bad Request|422 Unprocessable", False),
    # The API server.
    rule(
        "port_in_use",
        "address errno eaddrinuse already",
        r"address already in use|errno 98\b|EADDRINUSE|port \d+ is already (?:in use|used|taken)",
    ),
    # Structured outputs and the scheduler.
    rule("grammar_fsm_reject", "advance", r"Failed to advance FSM"),
    rule(
        "scheduler_state_assertion",
        "assert",
        r"^assert .{0,60}(?:num_output_placeholders|num_computed_tokens|num_cached_tokens|ref_cnt|"
        r"req(?:uest)?_id|request\.|req_to_blocks|block_pool|free_block|new_blocks|num_new_tokens|scheduler)",
    ),
    rule(
        "scheduler_state_assertion",
        "assertionerror keyerror",
        r"(?:scheduler|kv_cache_manager|block_pool|kv_cache_coordinator)\.py:\d+\D{0,40}"
        r"(?:AssertionError|KeyError)",
    ),
    # Workers and kernels.
    rule(
        "cuda_illegal_memory_access",
        "illegal cudaerrorillegaladdress",
        r"an illegal memory access was encountered|(?:cuda|hip)ErrorIllegalAddress"
        r"|CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    rule("cuda_illegal_memory_access", "xid", r"\bXid\b[^:]*(?:\([^)]*\))?[: ]+(?:13|31|43)\b"),
    rule("gpu_memory_access_fault", "fault", r"Memory access fault by GPU"),
    # Memory of the cards.
    rule("kv_cache_too_small_for_max_model_len", "larger", r"larger than the available KV cache memory"),
    rule(
        "kv_cache_too_small_for_max_model_len", "stored", r"(?:maximum )?number of tokens that can be stored in (?:the )?KV cache"
    ),
    rule("kv_cache_no_blocks", "available", r"No available memory for (?:the )?(?:KV )?cache blocks"),
    rule("kv_cache_no_blocks", "blocks", r"(?:GPU|CUDA|device|HPU|XPU) blocks: 0\b"),
    rule("startup_free_memory_too_low", "free", r"Free memory on device .{0,60}is less than (?:the )?desired"),
    rule("oom_at_weight_load", "failed", r"Failed to (?:create|load|allocate)[^:]{0,60}weights[^:]{0,20}:.{0,40}out of memory"),
    rule(
        "oom_at_warmup",
        "memory",
        rf"{_OOM}.{{0,80}}(?:warming up|warm-?up|graph capture|captur\w+ (?:CUDA |HIP )?graph|profiling)",
    ),
    rule(
        "oom_at_warmup",
        "memory",
        rf"(?:warming up|warm-?up|graph capture|captur\w+ (?:CUDA |HIP )?graph|profil\w+).{{0,80}}{_OOM}",
    ),
    rule(
        "oom_at_weight_load",
        "memory",
        rf"(?:loading (?:the )?(?:model|weights)|load_model|load_weights|create_weights).{{0,80}}{_OOM}",
    ),
    rule("oom_at_warmup", "memory alloc_failed", _OOM, None, _WARMING),
    rule("oom_at_weight_load", "memory alloc_failed", _OOM, None, _LOADING),
    rule("oom_at_runtime", "memory alloc_failed", _OOM),
    # Driver.
    rule("driver_too_old", "driver", r"driver on your system is too old|driver version is insufficient for CUDA runtime"),
    rule("driver_too_old", "cudaerrorinsufficientdriver", r"cudaErrorInsufficientDriver"),
    rule(
        "nvml_driver_library_mismatch",
        "mismatch",
        r"driver ?/ ?library version mismatch|API mismatch: the client has|LibRmVersionMismatch",
    ),
    rule("gpu_off_bus", "fallen xid lost", r"fallen off the bus|\bXid\b[^:]*(?:\([^)]*\))?[: ]+79\b|\bGPU is lost\b"),
    rule("gpu_hardware_error", "xid", r"\bXid\b[^:]*(?:\([^)]*\))?[: ]+(?:48|62|63|64|74|92|94|95|119|120|140)\b"),
    rule(
        "gpu_reset_refused",
        "reset",
        r"(?:GPUs?|devices?)\b.{0,60}could not be reset|reset[^.]{0,40}(?:refused|not supported|failed: .{0,20}in use)",
    ),
    rule("gpu_reset_refused", "client", r"In use by another client"),
    rule("gpu_reset_refused", "currently", r"is currently in use by (?:another process|one or more other processes)"),
    # Between the cards.
    rule("nccl_watchdog_timeout", "watchdog", r"Watchdog caught collective operation timeout"),
    rule("nccl_shm_too_small", "shared", r"Error while (?:creating|attaching to)[^/]{0,30}shared memory segment /dev/shm/nccl"),
    rule(
        "nccl_shm_too_small",
        "shm",
        r"(?:posix_fallocate|ftruncate|fallocate|mmap|No space left on device).{0,80}/dev/shm/nccl|"
        r"/dev/shm/nccl\S*.{0,60}No space left on device",
    ),
    rule("nccl_unhandled_system_error", "unhandled ncclsystemerror", r"unhandled system error|ncclSystemError"),
    rule("p2p_not_supported", "peer", r"peer access is not supported between these two devices|cudaErrorPeerAccessUnsupported"),
    rule(
        "nccl_unhandled_cuda_error",
        "unhandled ncclunhandledcudaerror",
        r"unhandled (?:cuda|hip|device) error|ncclUnhandledCudaError",
    ),
    # The model's files.
    rule("weight_key_missing", "module", r"There is no module or parameter named"),
    rule("weight_key_missing", "initialized", r"weights were not initialized from (?:the )?checkpoint"),
    rule("weight_key_missing", "key(s)", r"(?:Missing|Unexpected) key\(s\) in state_dict"),
    rule(
        "weight_key_missing",
        "keyerror",
        r"KeyError: ?['\"][\w.]+\.(?:weight|bias|qweight|qzeros|scales|g_idx|\w*_scale\w*|\w*_proj|lora_\w+)['\"]",
    ),
    rule("weight_key_missing", "keyerror", r"KeyError: ?['\"][\w.]{3,}['\"]", None, r"load_weights|weight_loader"),
    rule(
        "checkpoint_corrupt",
        "safetensorerror headertoo headertoosmall metadataincompletebuffer invalidheader",
        r"SafetensorError|MetadataIncompleteBuffer|HeaderToo(?:Large|Small)|InvalidHeader\w*",
    ),
    rule("checkpoint_corrupt", "central pytorchstreamreader", r"failed finding central directory|PytorchStreamReader failed"),
    rule("checkpoint_corrupt", "invalid", r"invalid load key, ", None),
    rule("lora_target_modules_mismatch", "expected", r"expected target modules in\b"),
    rule("tokenizer_files_missing", "tokenizer", r"Can(?:'|’|no)t load (?:the )?tokenizer for"),
    rule("tokenizer_files_missing", "backend", r"Couldn't instantiate the backend tokenizer"),
    rule("tokenizer_files_missing", "vocabulary", r"Unable to load vocabulary from file"),
    rule("max_model_len_exceeds_model", "greater", r"max_model_len .{0,24}is greater than the derived"),
    # Environment.
    rule(
        "visible_gpus_fewer_than_world_size",
        "number",
        r"(?:larger|greater|more) than the (?:total )?number of (?:available|visible) (?:GPUs|devices|cards|accelerators)",
    ),
    rule(
        "visible_gpus_fewer_than_world_size",
        "exceeds",
        r"required (?:GPUs|devices|accelerators) exceeds the total number of available",
    ),
    rule("visible_gpus_fewer_than_world_size", "ordinal", r"invalid device ordinal"),
    rule("env_var_collision", "appears", r"VLLM_\w+ .{0,160}appears to be a URI"),
    rule(
        "nvcc_missing_jit",
        "nvcc",
        r"could ?n[o']?t find nvcc|nvcc['\"]?: (?:command )?not found|nvcc['\"]?: No such file|No such file or directory: "
        r"['\"][^'\"]*nvcc"
        r"|nvcc (?:is |was )?(?:not found|not available|missing)|cannot find nvcc",
    ),
    rule("nvcc_missing_jit", "cuda_home", r"CUDA_HOME environment variable is not set"),
    # Hub.
    rule(
        "hub_proxy_unreachable",
        "proxyerror proxy",
        r"ProxyError|(?:cannot|unable to|could not|failed to) connect to (?:the )?proxy|Could not resolve proxy"
        r"|Tunnel connection failed",
    ),
    rule("hub_offline_cache_miss", "offlinemodeisenabled offline", r"OfflineModeIsEnabled|offline mode is enabled"),
    rule("hub_offline_cache_miss", "localentrynotfounderror", r"LocalEntryNotFoundError"),
    rule(
        "hub_offline_cache_miss",
        "cached requested appropriate directory outgoing",
        r"cannot find the (?:requested|appropriate) [^.]{0,40}(?:files|folder)[^.]{0,40} in the (?:local|disk) cache"
        r"|Cache directory not found|could ?n[o']?t find (?:it|them) in the cached files|outgoing traffic has been disabled",
    ),
    rule(
        "hub_access_denied",
        "gated restricted gatedrepoerror",
        r"Cannot access gated repo|GatedRepoError|Access to model \S+ is restricted",
    ),
    rule("hub_access_denied", "client", r"40[13] Client Error.{0,80}(?:for url|huggingface|hf-mirror|modelscope|\(Request ID)"),
    # Packages.
    rule("model_arch_inspect_failed", "inspect", r"Error in inspecting model architecture|failed to be inspected"),
    rule("rope_config_key_missing", "keyerror", r"KeyError: ?['\"](?:rope_\w+|rotary_\w+)['\"]"),
    rule(
        "rope_config_key_missing",
        "keyerror",
        r"KeyError: ?['\"](?:type|factor|original_max_position_embeddings|short_factor|long_factor)['\"]",
        None,
        r"rope|rotary",
    ),
    rule(
        "rope_config_key_missing",
        "keyerror missing",
        r"(?=.*rope)(?:Missing required keys in .{0,8}rope_|KeyError: ?['\"](?:type|factor|rope_type)['\"])",
    ),
    rule("transformers_too_old_for_model", "recognize", r"model type .{1,60}but Transformers does not recognize"),
    rule(
        "transformers_api_incompatible",
        "attribute",
        r"^.{0,80}\b\w*(?:Tokenizer|TokenizerFast|TokenizerBase|Config|Processor|PreTrainedModel|ImageProcessor)\w*['\"]? "
        r"(?:object )?has no attribute",
    ),
    rule("transformers_api_incompatible", "attribute", r"module ['\"]?transformers[\w.]*['\"]? has no attribute"),
    rule("transformers_api_incompatible", "import", r"cannot import name ['\"]\w+['\"] from ['\"]transformers[\w.]*['\"]"),
    rule("transformers_api_incompatible", "attribute", r"^(?!.*NoneType).*has no attribute", None, r"/transformers/"),
    rule("transformers_api_incompatible", "unexpected", r"unexpected keyword argument", None, r"/transformers/"),
    rule(
        "transformers_api_incompatible",
        "unexpected",
        r"\w*(?:Tokenizer|Config|Processor|For\w+|Model)\w*\.?\w*\(\) got an unexpected keyword argument",
    ),
    rule("glibc_too_old", "glibc_", r"version [`'\"‘]?GLIBC_\d\.\d+['\"’]? not found"),
    rule("torch_abi_mismatch", "undefined", r"undefined symbol: ?\S+"),
    rule("no_kernel_image_for_arch", "kernel", r"^(?!.*HIP error).*no kernel image is available for execution"),
    rule("no_kernel_image_for_arch", "cudaerrornokernelimagefordevice", r"cudaErrorNoKernelImageForDevice"),
    rule("no_kernel_image_for_arch", "capability", r"CUDA capability sm_\d+\w? is not compatible with the current PyTorch"),
    rule(
        "hip_no_binary_for_arch",
        "hiperrornobinaryforgpu hiperrorinvaliddevicefunction",
        r"hipErrorNoBinaryForGpu|hipErrorInvalidDeviceFunction",
    ),
    rule(
        "hip_no_binary_for_arch", "hip", r"HIP error: (?:invalid device function|no kernel image|device kernel image is invalid)"
    ),
    rule("hip_no_binary_for_arch", "object", r"Unable to find code object for all current devices"),
    # The host.
    rule("host_oom_killed", "oom-kill", r"oom-kill(?::|er\b)"),
    rule("host_oom_killed", "oom_kill", r"oom_kill_process"),
    rule("host_oom_killed", "killed", r"(?:Memory cgroup )?out of memory: Kill(?:ed)? process"),
    rule("host_oom_killed", "oomkilled", r"OOMKilled(?![\"']?: ?false)"),
    rule(
        "host_oom_killed",
        "killed",
        r"killed (?:due to|because of)[^.]{0,40}(?:memory pressure|\(OOM\)|low on memory|low memory)|of this unit has been "
        r"killed by the OOM killer",
    ),
    rule("host_oom_killed", "oom-kill", r"(?:result|status)[ =']+oom-kill"),
    rule("zombie_holds_gpu_memory", "defunct", rf"{_ENGINE_NAME}.{{0,40}}<defunct>"),
    Rule(
        "zombie_holds_gpu_memory",
        (" z", "\tz"),
        re.compile(rf"^(?:\S+\s+)?\d+\s(?:.*\s)?Z[slNL<+]{{0,4}}\s.*{_ENGINE_NAME}", re.IGNORECASE),
        True,
        None,
    ),
    rule("zombie_holds_gpu_memory", "zombie", rf"{_ENGINE_NAME}.{{0,120}}zombie|zombie.{{0,120}}(?:vllm|engine|worker)"),
    rule("process_unkillable_in_driver", "uvm_spin_loop", r"uvm_spin_loop"),
    rule(
        "process_unkillable_in_driver",
        "+0x",
        r"\[<[0-9a-f]+>\].{0,80}\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?:nvidia\w*|amdgpu|amdkfd|hydcu|hycu|hygon\w*)\]",
    ),
    rule("process_unkillable_in_driver", "+0x", r"\[<[0-9a-f]+>\].{0,20}(?:kfd|amdgpu|hydcu)_\w+\+0x"),
    rule(
        "process_unkillable_in_driver",
        "kill",
        r"(?=.*(?:state[ :=]*D\b|D state|uninterruptible))(?=.*SIG?KILL|.*kill -9|.*KILL\b).*",
    ),
)
