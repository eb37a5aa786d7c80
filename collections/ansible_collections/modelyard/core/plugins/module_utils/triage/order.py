"""Which of several causes in one log is named: data with a reason each, and the choice by it."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.reading import Reader, Sign
from ansible_collections.modelyard.core.plugins.module_utils.triage.symptoms import SYMPTOMS


class Over(NamedTuple):
    """`winner` is named and not one of `losers`, wherever they stand in the log."""

    winner: str
    losers: Tuple[str, ...]
    why: str


#: Higher ones explain lower ones.
HELD = (
    "process_unkillable_in_driver",
    "zombie_holds_gpu_memory",
    "orphan_engine_holds_gpu_memory",
    "vram_held_no_process",
    "gpu_reset_refused",
)
#: First errors that say only that another failed, or that an engine outlives. Any other first error is named before them.
GENERAL = (
    "nccl_watchdog_timeout",
    "nccl_unhandled_system_error",
    "nccl_unhandled_cuda_error",
    "model_arch_inspect_failed",
    "grammar_fsm_reject",
    "vram_held_no_process",
    "gpu_reset_refused",
)
#: A request that is refused proves a healthy service, so whatever ended an engine is named before it, and it before what is
#: harmless.
REQUESTS = ("request_context_too_long", "request_validation_error", "request_model_not_found", "request_unauthorized")
HARMLESS = ("orderly_stop_unexplained", "shutdown_leak_warning")
_SYMPTOM_IDS = tuple(dict.fromkeys(rule.cause for rule in SYMPTOMS))
#: A unit's status is no error, but it says more than that the engine is dead.
SYMPTOM_ORDER = tuple(
    name
    for one in _SYMPTOM_IDS
    if one not in HARMLESS
    for name in (("engine_death_exit_zero", one) if one == "engine_dead_error_only" else (one,))
)
OVER: Tuple[Over, ...] = (
    *(
        Over(
            winner, (*HELD[place + 1 :], "startup_free_memory_too_low"), "who holds the card explains why nothing can start on it"
        )
        for place, winner in enumerate(HELD[:3])
    ),
    Over("vram_held_no_process", ("gpu_reset_refused",), "memory without an owner says more than a reset that is refused"),
    Over(
        "hub_proxy_unreachable",
        ("hub_offline_cache_miss", "tokenizer_files_missing", "hub_access_denied"),
        "what cannot be reached is then looked for in the cache",
    ),
    Over("hub_offline_cache_miss", ("tokenizer_files_missing",), "the tokenizer was to come from the hub"),
    Over(
        "hub_access_denied",
        ("tokenizer_files_missing", "hub_offline_cache_miss"),
        "refused files are then looked for in the cache",
    ),
    Over("nccl_shm_too_small", ("nccl_unhandled_system_error",), "the named call says more than the general text"),
    Over(
        "gpu_off_bus",
        ("cuda_illegal_memory_access", "gpu_hardware_error", *HELD[1:]),
        "a card that is gone fails everything on it",
    ),
    Over("gpu_hardware_error", ("cuda_illegal_memory_access",), "a damaged card makes kernels fail"),
    Over("driver_too_old", ("visible_gpus_fewer_than_world_size",), "a driver that cannot be used shows no cards"),
    Over("nvml_driver_library_mismatch", ("visible_gpus_fewer_than_world_size",), "a driver that cannot be used shows no cards"),
    Over("model_arch_inspect_failed", ("model_arch_unsupported",), "the name is in the list"),
    *(
        Over(stage, ("oom_at_runtime",), "the stage is told by a later line of the same failure")
        for stage in ("oom_at_weight_load", "oom_at_warmup")
    ),
    Over("request_context_too_long", ("request_validation_error",), "a body about the length is about nothing else"),
    Over("request_model_not_found", ("request_validation_error",), "a body that names a model is about nothing else"),
    Over("hip_no_binary_for_arch", ("no_kernel_image_for_arch",), "HIP's own words"),
    Over("rope_config_key_missing", ("weight_key_missing",), "a key of the rope settings is no tensor"),
)


def choose(reader: Reader) -> Tuple[Sign | None, List[Sign]]:
    """(the sign that is named, all others in the order of the log)."""
    found = dict(reader.first)
    for over in OVER:
        if over.winner in found:
            for loser in over.losers:
                found.pop(loser, None)
    best = _best(reader, found)
    everything = [*reader.first.values(), *(sign for name, sign in reader.cut.items() if name not in reader.first)]
    if reader.unknown:
        everything.append(reader.unknown)
    # The same line in the words of a weaker rule is not told twice.
    taken = {line.number for line in best.lines} if best else set()
    weaker = (*SYMPTOM_ORDER, *HARMLESS)
    others = [
        sign
        for sign in everything
        if best is None or (sign.cause != best.cause and not (sign.cause in weaker and sign.number in taken))
    ]
    return best, sorted(others, key=lambda sign: sign.number)


def _best(reader: Reader, found: Dict[str, Sign]) -> Sign | None:
    not_first = {*SYMPTOM_ORDER, *HARMLESS, *REQUESTS}
    errors = sorted((sign for sign in found.values() if sign.cause not in not_first), key=lambda sign: sign.number)
    named = [sign for sign in errors if sign.cause not in GENERAL] or errors
    if named:
        return named[0]
    for name in ("dtk_version_undetected", "grammar_compile_crash", "scheduler_state_assertion"):
        if name in reader.cut:
            return reader.cut[name]
    symptoms = [found.get(name) or reader.cut.get(name) for name in SYMPTOM_ORDER]
    # That a worker saw its parent go says nothing when anything else is said of the end.
    present = sorted(
        (sign for sign in symptoms if sign), key=lambda sign: all(said.lower().startswith("parent") for said in sign.said or "-")
    )
    stop = found.get("orderly_stop_unexplained")
    if reader.unknown and all(_only_after(sign, reader.unknown) for sign in present):
        return reader.unknown
    if stop and present and all(sign.number > stop.number for sign in present):
        # The engine ended because it was told to; what its parts then say of each other follows from that.
        return stop
    if present:
        return present[0]
    bodies = sorted((found[name] for name in REQUESTS if name in found), key=lambda sign: sign.number)
    explained = [sign for sign in bodies if sign.visible]
    harmless = [found[name] for name in HARMLESS if name in found]
    ranked = [*explained, *harmless[:1], *bodies, *harmless]
    if "shutdown_leak_warning" in found and harmless[:1] == [found["shutdown_leak_warning"]]:
        ranked = [*explained, *bodies, *harmless]
    return ranked[0] if ranked else None


def _only_after(symptom: Sign, error: Sign) -> bool:
    """Does a symptom follow from an error? A head such as `EngineCore encountered a fatal error` stands above the error it "
    "tells of."""
    return symptom.number > error.number or any(
        word in symptom.said[:1][0].lower() for word in ("encountered", "failed to start") if symptom.said
    )
