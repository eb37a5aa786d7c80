"""Bytes of the state that layers without attention keep (Mamba, gated delta nets). Pure.

Such a layer keeps one state of fixed size for a request, however long that is, where a layer with attention keeps every token.
Sources: vLLM 0.32.0, model_executor/layers/mamba/mamba_utils.py (shapes and types) and get_mamba_state_shape_from_config of the
models that are named here.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

#: model_type of models whose state is known, by its kind.
DELTA = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text")
MAMBA2 = ("granitemoehybrid", "falcon_h1", "nemotron_h")
MAMBA1 = ("jamba",)
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
#: model_type -> (key of config.json that says the state's type, what holds where it does not). Of others it is the model's own.
STATE_TYPE = {
    "nemotron_h": ("mamba_ssm_cache_dtype", "float32"),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), ("mamba_ssm_dtype", "")),
}


def bytes_of(own: Mapping[str, Any], engine: Mapping[str, Any], tp: int, number: int) -> Optional[int]:
    """Bytes of the state of one layer on a rank of `tp`; None for models whose state is not known here.

    :param own: the part of config.json that writes text
    :param number: bytes of a number as the model is computed
    """
    conv = BYTES.get(str(engine.get("mamba_cache_dtype", "auto")), number)
    said = str(engine.get("mamba_ssm_cache_dtype", "auto"))
    if said == "auto":
        key, default = STATE_TYPE.get(str(own.get("model_type")), ("", ""))
        said = str(own.get(key) or default)
    state = BYTES.get(said, conv)
    try:
        return _of(own, tp, conv, state)
    except (KeyError, TypeError, ValueError):
        return None


def _of(own: Mapping[str, Any], tp: int, conv: int, state: int) -> Optional[int]:
    kind = own.get("model_type")
    if kind in DELTA:
        keys, values = int(own["linear_num_key_heads"]), int(own["linear_num_value_heads"])
        key, value = int(own["linear_key_head_dim"]), int(own["linear_value_head_dim"])
        wide = (2 * keys * key + values * value) // tp
        return wide * (int(own["linear_conv_kernel_dim"]) - 1) * conv + values // tp * value * key * state
    if kind in MAMBA2:
        heads, head = _first(own, "mamba_n_heads", "mamba_num_heads"), _first(own, "mamba_d_head", "mamba_head_dim")
        size, kernel = _first(own, "mamba_d_state", "ssm_state_size"), _first(own, "mamba_d_conv", "conv_kernel")
        groups = _first(own, "mamba_n_groups", "n_groups")
        groups += 0 if groups % tp == 0 else tp - groups
        inner = heads * head if kind == "nemotron_h" else int(own.get("mamba_d_ssm") or own["mamba_expand"] * own["hidden_size"])
        return (inner + 2 * groups * size) // tp * (kernel - 1) * conv + heads // tp * head * size * state
    if kind in MAMBA1:
        inner = int(own["mamba_expand"]) * int(own["hidden_size"]) // tp
        return inner * (int(own["mamba_d_conv"]) - 1) * conv + inner * int(own["mamba_d_state"]) * state
    return None


def _first(own: Mapping[str, Any], *keys: str) -> int:
    """The first of these that is there; a KeyError where none is."""
    return int(own[next((key for key in keys if key in own), keys[0])])
