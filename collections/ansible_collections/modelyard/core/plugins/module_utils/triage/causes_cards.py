"""Causes in the memory of the cards, the driver, the way between the cards and the host's processes."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.vocabulary import GUARDED, UNMUTE_NCCL, Cause

CAUSES: Tuple[Cause, ...] = (
    Cause(
        "kv_cache_too_small_for_max_model_len",
        "kv_cache_memory",
        "after weights and overhead the KV cache cannot hold one request of max_model_len",
        True,
        "yes",
        (
            "First see that no leftover eats the budget: compare the memory that was free at the start with an idle card",
            "The estimated length in the message is the upper bound of this set-up",
            "Lower max-model-len, raise gpu-memory-utilization within what was agreed, use an fp8 KV cache, or more cards",
        ),
    ),
    Cause(
        "kv_cache_no_blocks",
        "kv_cache_memory",
        "no memory is left for even one block of the KV cache",
        True,
        "yes",
        (
            "Compare the size of the weights with the budget (total x utilization); very small values for sharing a card "
            "end like this",
            "Look for other processes on the card, then raise the utilization or use a smaller or quantised model",
        ),
    ),
    Cause(
        "oom_at_weight_load",
        "device_memory",
        "the card's memory ran out while weights were made or loaded",
        True,
        "yes",
        (
            "Compute the weights per card (parameters x bytes / tensor parallel size) against the card before the next try",
            "See that the intended card was used and that it was empty (order of the mask, leftovers)",
            "More cards, a checkpoint that is really loaded quantised, or a smaller model. A higher gpu-memory-utilization "
            "does not "
            "help here",
        ),
    ),
    Cause(
        "oom_at_warmup",
        "device_memory",
        "the weights fit; memory ran out while profiling, capturing graphs or warming up the sampler",
        True,
        "yes",
        (
            "Lower max-num-seqs, max-num-batched-tokens or gpu-memory-utilization; leave graph capture out for a test",
            "Look for a second tenant whose use changed between profiling and warm-up",
        ),
    ),
    Cause(
        "oom_at_runtime",
        "device_memory",
        "the card's memory ran out while serving, or at a stage that is not shown",
        True,
        "yes",
        (
            "Find the kind of request (prompt_logprobs, long pictures or videos) and limit it at the gateway",
            "Leave more room: a lower gpu-memory-utilization or max-num-batched-tokens",
            "The engine is dead after this: guarded teardown, a look for workers that live on, then a restart",
        ),
    ),
    Cause(
        "startup_free_memory_too_low",
        "device_memory",
        "less memory is free at the start than utilization x total",
        True,
        "yes",
        (
            "Compare free with wanted: gigabytes are another process or a leftover; some hundred MB are the display, a "
            "context or a margin",
            "Find the holder by the device files (fuser, lsof) and the vendor's tool; look outside of this container too",
            "A leftover of this service: guarded teardown. Another tenant: ask, never kill. A thin margin: lower the utilization",
        ),
    ),
    Cause(
        "driver_too_old",
        "driver",
        "the driver supports an older CUDA than torch was built for",
        True,
        "yes",
        (
            "Read both numbers: the driver's CUDA level (found version 12080 is 12.8) and torch.version.cuda",
            "Pin the torch and vLLM build for that level, or plan a driver upgrade with the admin in a window; an install "
            "of torch "
            "without a pin is the usual trigger",
        ),
    ),
    Cause(
        "nvml_driver_library_mismatch",
        "driver",
        "driver libraries and the loaded kernel module have different versions",
        True,
        "yes",
        (
            "Compare /proc/driver/nvidia/version with the version of libnvidia-ml; an unattended upgrade is the usual reason",
            "Jobs that run may go on: start no new ones",
            "Ask the admin to load the modules anew when nobody holds the cards, or to reboot in a window; then hold the "
            "packages",
        ),
    ),
    Cause(
        "gpu_off_bus",
        "driver",
        "the card dropped off the PCIe bus",
        True,
        "yes",
        (
            "Schedule nothing on that card; tools that ask it for memory or processes will hang or fail",
            "Call the admin with the kernel log: power, temperature, riser, PCIe errors, firmware",
            "Recovery is a power cycle that a person decides, never a playbook",
        ),
    ),
    Cause(
        "gpu_hardware_error",
        "driver",
        "the kernel log tells of a fault of the card itself (Xid of memory errors, of the link or of its own processor)",
        True,
        "yes",
        (
            "Take that card out of service; others may go on",
            "Read the counts of ECC errors and retired pages or rows, and give them with the kernel log to the admin",
            "No reset while anybody has the card open, and none that the admin has not asked for",
        ),
    ),
    Cause(
        "gpu_reset_refused",
        "driver",
        "a reset is refused: something has the device open, or the product does not support it",
        True,
        "yes",
        (
            "List the holders of the device files, with monitoring, persistence daemon, display server and other containers",
            "Stop only what is yours; ask the owners of the rest. Persistence mode itself counts as a holder with some drivers",
            '"Not Supported" is final for that card: hand it to the admin (modules loaded anew, or a planned reboot)',
        ),
    ),
    Cause(
        "vram_held_no_process",
        "driver",
        "memory of a card stays taken and no process owns it",
        False,
        "yes",
        (
            "Look for holders on the host and in every container (device files, fdinfo, the vendor's list), then for users "
            "of shared IPC",
            "Compare with the idle baseline of this card before calling it stranded",
            "If truly nobody holds it, hand it to the admin with the evidence; meanwhile mark the card as not usable in the "
            "inventory",
        ),
        "Who holds it is shown by a list of all processes that have the device files open, made as root on the host",
    ),
    Cause(
        "nccl_watchdog_timeout",
        "interconnect",
        "a collective did not finish in time on some rank",
        False,
        "yes",
        (
            "See whether it is the first collective (sequence 1, nothing completed: set-up, P2P, IOMMU or ACS) or a late "
            "one (a rank was "
            "slow or died: find that rank's first error)",
            "Run the all-reduce test of two cards with P2P on and off",
            "If it passes only without P2P, set NCCL_P2P_DISABLE=1 for this host and turn the custom all-reduce off; ask "
            "the admin about "
            "IOMMU and ACS",
            GUARDED,
        ),
        UNMUTE_NCCL,
    ),
    Cause(
        "nccl_unhandled_system_error",
        "interconnect",
        "NCCL met a system call that fails and does not say which",
        False,
        "yes",
        (
            "Start once with NCCL_DEBUG=INFO and read the WARN line above it",
            "See size and free space of /dev/shm, ulimits, the chosen network interface and permissions",
            "Change no options of the model: this is set-up, not memory",
        ),
        UNMUTE_NCCL,
    ),
    Cause(
        "nccl_shm_too_small",
        "interconnect",
        "NCCL could not make its segment in /dev/shm",
        True,
        "yes",
        (
            "df -h /dev/shm on the host and in the container; the 64 MB that containers get are the usual reason",
            "Enlarge it (shm-size or host IPC), or remove stale nccl-* segments of this service's user that no process has open",
            "Run the all-reduce test again before the engine is started",
        ),
    ),
    Cause(
        "p2p_not_supported",
        "interconnect",
        "the cards have no peer access, and the custom all-reduce wanted it",
        True,
        "yes",
        (
            "Turn the custom all-reduce off; on consumer cards that is the normal setting",
            "Confirm it with the topology tool and a test of peer access, and note it as a fact of the host",
        ),
    ),
    Cause(
        "nccl_unhandled_cuda_error",
        "interconnect",
        "NCCL or RCCL tells of a device error at set-up or in the first collective",
        False,
        "yes",
        (
            "Run each card alone first (tensor test), then the all-reduce of two cards with NCCL_DEBUG=INFO",
            "See that all ranks have the same driver and runtime and that their masks do not overlap",
            "On ROCm and DTK the text says NCCL, but it is RCCL: compare its version with the supported set",
        ),
        UNMUTE_NCCL,
    ),
    Cause(
        "host_oom_killed",
        "host_os",
        "a process was killed because the host's memory ran out",
        True,
        "no",
        (
            "Read who was killed and who triggered it: they differ",
            "See page cache, pinned memory, CPU offload, swap space and parallel JIT compiles (limit MAX_JOBS)",
            "Add memory or lower the load; then the guarded teardown for workers that live on, and a restart",
        ),
    ),
    Cause(
        "zombie_holds_gpu_memory",
        "host_os",
        "a defunct worker remains, and memory of the cards is still charged to it",
        True,
        "yes",
        (
            "Signals do not help a zombie: find its parent; if that lives, let it reap (restart that one service); with "
            "PPID 1 and still "
            "there, hand it over",
            "State Zl: some threads of the group live; look in /proc/PID/task for one that is stuck in the driver",
            "Start no engine on these cards; collect ps, memory of each card and the reset's answer for the admin. No "
            "reboot from here",
        ),
    ),
    Cause(
        "orphan_engine_holds_gpu_memory",
        "host_os",
        "the API server is gone, but the engine or workers still run and hold the cards",
        True,
        "yes",
        (
            "Find them by the device files; the title is VLLM::EngineCore cut to 15 characters, so a search for python or "
            "vllm serve "
            "misses it",
            "Prove whose they are (user, cgroup or unit, start time, environment), then TERM, wait, KILL of that PID only",
            "See that the memory has fallen; let the unit end its whole control group at a stop",
        ),
    ),
    Cause(
        "process_unkillable_in_driver",
        "host_os",
        "a process spins or sleeps inside the driver; signals do nothing",
        True,
        "yes",
        (
            "Note state, kernel stack and kernel log; do not go on sending KILL",
            "Take that card out of service; other cards may go on",
            "Hand it to the admin: a driver update or a planned reboot",
        ),
    ),
)
