"""What config.json says of a model's attention, as far as its KV cache depends on it. Pure functions.

Sources: vLLM 0.32.0, transformers_utils/model_arch_config_convertor.py (head size, KV heads, which models have latent attention),
config/model.py (dtype `auto`), config/cache.py and utils/torch_utils.py (kv_cache_dtype), model_executor/layers/attention/; the
defaults of transformers 5.16 for what a config.json leaves out.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import states

FULL, SLIDING, CHUNKED, LATENT, STATE = "full", "sliding", "chunked", "latent", "state"

#: Bytes of a number.
BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
#: Bytes of a number for values of kv_cache_dtype. Of others (nvfp4, turboquant ...) the size depends on the engine's backend.
CACHE_BYTES = {
    **{"float16": 2, "bfloat16": 2},
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8_per_token_head", "fp8_per_token_head"), 1),
}
#: These keep a 32-bit scale for each key and each value of a head besides.
WITH_SCALES = ("int8_per_token_head", "fp8_per_token_head")
#: A token of one layer of latent attention in DeepSeek's own fp8 form: 512 numbers, 4 scales, 64 numbers of 2 bytes.
FP8_DS_MLA = 656

#: Where the part that writes text stands in the config of a model with several parts (pictures, speech).
PARTS = ("text_config", "llm_config", "language_config")
#: model_type -> every so many layers one sees the whole text, the others a window. Used where `layer_types` is not written out.
EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gemma3n_text": 5, "cohere2": 4, "gpt_oss": 2}
#: What layers that are no attention are called in `layer_types` and its relatives; they keep a state of fixed size instead.
STATES = ("linear_attention", "mamba", "mamba2", "recurrent", "conv", "gdn", "kda", "lightning", "rwkv")
#: model_type of models whose latent attention vLLM serves as such. Others with kv_lora_rank are not known here.
LATENT_TYPES = (
    *("axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_vl_v2", "glm4_moe_lite", "glm_moe_dsa", "kimi_k2"),
    *("longcat_flash", "pangu_ultra_moe"),
)


class Shape(NamedTuple):
    """What config.json says; None where it does not say."""

    heads: Optional[int]
    kv_heads: Optional[int]
    layers: Optional[int]
    head_size: Optional[int]
    bytes: int  # of a number as the model is computed


class Kind(NamedTuple):
    """`layers` with the same cache. `window`: tokens that it keeps, 0 for all. `token_bytes`: of a token, a layer and a rank;
    `state_bytes`: of a layer that keeps one state for a request, of whatever length.
    """

    name: str
    layers: int
    window: int
    token_bytes: int
    state_bytes: int = 0


class Layout(NamedTuple):
    """The caches of one rank. Without `kinds` nothing is known; `gaps` say why, or what is missing in the figures."""

    kinds: Tuple[Kind, ...]
    gaps: Tuple[str, ...] = ()


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of models with several parts the one that writes text."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict):
        return text_part(thinker)
    return next((config[key] for key in PARTS if isinstance(config.get(key), dict)), config)


def whole(config: Mapping[str, Any], *keys: str) -> Optional[int]:
    """The first of these that is a number above 0."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def dtype(config: Mapping[str, Any], engine: Mapping[str, Any] = {}) -> str:
    """Name of the numbers that the engine computes with. `auto` makes 16 bits of 32."""
    asked = str(engine.get("dtype") or "auto")
    if asked != "auto":
        return asked
    own = text_part(config)
    named = next((str(part[key]) for part in (own, config) for key in ("dtype", "torch_dtype") if part.get(key)), "")
    named = named.rpartition(".")[2]
    return "bfloat16" if named in ("float32", "float", "") else named


def shape(config: Mapping[str, Any], engine: Mapping[str, Any] = {}) -> Shape:
    """Numbers of the attention of the part that writes text."""
    own = text_part(config)
    heads, hidden = whole(own, "num_attention_heads", "n_head"), whole(own, "hidden_size", "n_embd")
    size = whole(own, "head_dim", "hidden_size_per_head") or (hidden // heads if heads and hidden else None)
    kv_heads = whole(own, "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
    layers = whole(own, "num_hidden_layers", "n_layer", "num_layers")
    return Shape(heads, kv_heads or heads, layers, size, BYTES.get(dtype(config, engine), 2))


def layout(config: Mapping[str, Any], engine: Mapping[str, Any] = {}, tp: int = 1) -> Layout:
    """The caches of one rank of `tp`. `engine`: the service's options of vLLM that matter here (dtype, kv_cache_dtype ...)."""
    own = text_part(config)
    for key, why in (
        ("is_encoder_decoder", "it has an encoder and a decoder"),
        ("compress_ratios", "its cache is compressed by layer (DeepSeek-V4)"),
    ):
        if own.get(key) or config.get(key):
            return Layout((), (f"{why}, whose cache is not worked out here",))
    found, cache = shape(config, engine), cache_dtype(config, engine)
    if own.get("kv_lora_rank"):
        return _latent(own, found, cache)
    if not (found.kv_heads and found.layers and found.head_size):
        wanted = {"num_hidden_layers": found.layers, "num_attention_heads": found.kv_heads, "head_dim": found.head_size}
        return Layout((), (f"config.json does not tell {', '.join(name for name, value in wanted.items() if not value)}",))
    if cache not in ("auto", *CACHE_BYTES):
        return Layout((), (f"how large a token is with kv_cache_dtype {cache} depends on the engine's backend",))
    number = found.bytes if cache == "auto" else CACHE_BYTES[cache]
    scales = 2 * 4 if cache in WITH_SCALES else 0
    token = max(1, found.kv_heads // max(1, tp)) * (2 * found.head_size * number + scales)
    window = whole(own, "sliding_window", "attention_chunk_size") or 0
    names, gaps = _layers(own, found.layers), _gaps(own, engine)
    if engine.get("disable_hybrid_kv_cache_manager") and len(set(names)) > 1:
        names = [FULL for _ in names]
    kinds = [
        Kind(name, names.count(name), 0 if name == FULL else window, token) for name in (FULL, SLIDING, CHUNKED) if name in names
    ]
    keeping = _with_state(own, found.layers)
    state = states.bytes_of(own, engine, max(1, tp), found.bytes) if keeping else None
    if keeping and state is None:
        gaps.append(f"{keeping} layers keep a state of fixed size instead, which is not in the figures")
    elif keeping and kinds:
        kinds.append(Kind(STATE, keeping, 0, 0, int(state or 0)))
    return Layout(tuple(kinds), tuple(gaps))


def cache_dtype(config: Mapping[str, Any], engine: Mapping[str, Any]) -> str:
    """kv_cache_dtype as the engine resolves it: a checkpoint can say it, too."""
    asked = str(engine.get("kv_cache_dtype") or "auto")
    said = config.get("quantization_config")
    if asked != "auto" or not isinstance(said, dict):
        return asked
    inner = said["quantization"] if isinstance(said.get("quantization"), dict) else said
    scheme = inner.get("kv_cache_scheme") or said.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return "fp8" if scheme.get("num_bits") == 8 else f"{scheme.get('num_bits')} bits of the checkpoint"
    algorithm = str(inner.get("kv_cache_quant_algo") or "").lower()
    return "fp8" if algorithm.startswith("fp8") else algorithm or asked


def _latent(own: Mapping[str, Any], found: Shape, cache: str) -> Layout:
    """Multi-head latent attention: one vector a token and layer, the same on every rank."""
    rank, rope = whole(own, "kv_lora_rank"), whole(own, "qk_rope_head_dim")
    if own.get("model_type") not in LATENT_TYPES:
        return Layout((), (f"it has latent attention of a kind that is not known here (model_type {own.get('model_type')})",))
    if not (rank and rope and found.layers):
        return Layout((), ("config.json does not tell kv_lora_rank, qk_rope_head_dim and num_hidden_layers",))
    if cache == "fp8_ds_mla":
        token = FP8_DS_MLA
    elif cache in ("auto", *CACHE_BYTES) and cache not in WITH_SCALES:
        token = (rank + rope) * (found.bytes if cache == "auto" else CACHE_BYTES[cache])
    else:
        return Layout((), (f"how large a token is with kv_cache_dtype {cache} depends on the engine's backend",))
    gaps = ["the cache of its indexer is not in the figures"] if own.get("index_head_dim") else []
    return Layout((Kind(LATENT, found.layers, 0, token),), tuple(gaps))


def _layers(own: Mapping[str, Any], count: int) -> List[str]:
    """What each layer that has a KV cache keeps; layers with a state of fixed size are left out."""
    shared = whole(own, "num_kv_shared_layers") or 0
    named = own.get("layer_types") or own.get("layers_block_type") or own.get("attn_type_list")
    if isinstance(named, list) and named:
        kinds = [_kind(str(name)) for name in named[: max(0, count - shared)]]
        return [kind for kind in kinds if kind]
    model, window = str(own.get("model_type")), whole(own, "sliding_window")
    every = whole(own, "sliding_window_pattern", "_sliding_window_pattern") or EVERY.get(model)
    if whole(own, "full_attention_interval"):  # Qwen3-Next: the others are linear
        return [FULL] * (count // int(own["full_attention_interval"]))
    if isinstance(own.get("hybrid_override_pattern"), str):  # Nemotron-H: M a state, * attention, - neither
        return [FULL] * own["hybrid_override_pattern"].count("*")
    if whole(own, "attn_layer_period"):  # Jamba
        offset = own.get("attn_layer_offset")
        first = offset if isinstance(offset, int) else 0
        return [FULL for place in range(count) if place % int(own["attn_layer_period"]) == first]
    if window and every:
        return [FULL if (place + 1) % every == 0 else SLIDING for place in range(count - shared)]
    if whole(own, "attention_chunk_size"):  # Llama 4: layers without rotary positions see everything, every fourth by default
        listed = own.get("no_rope_layers") or [int((place + 1) % 4 != 0) for place in range(count)]
        return [CHUNKED if rotary else FULL for rotary in listed]
    if window and own.get("use_sliding_window", True):
        first = (whole(own, "max_window_layers") or 0) if own.get("use_sliding_window") else 0
        return [SLIDING if place >= first else FULL for place in range(count)]
    return [FULL] * (count - shared)


def _with_state(own: Mapping[str, Any], count: int) -> int:
    """How many layers keep a state, of as many as there are."""
    if own.get("model_type") == "falcon_h1":  # each of its layers has attention and a state
        return count
    named = own.get("layer_types") or own.get("layers_block_type") or own.get("attn_type_list")
    if isinstance(named, list) and named:
        return sum(any(word in str(name) for word in STATES) for name in named[:count])
    pattern = own.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return pattern.count("M")
    if whole(own, "full_attention_interval") or whole(own, "attn_layer_period"):
        return count - len(_layers(own, count))
    return 0


def _kind(name: str) -> str:
    """Empty for a layer without a KV cache."""
    if "sliding" in name or name in ("local", "local_attention"):
        return SLIDING
    if "chunk" in name:
        return CHUNKED
    return "" if any(word in name for word in STATES) or name == "moe" else FULL


def _gaps(own: Mapping[str, Any], engine: Mapping[str, Any]) -> List[str]:
    """What takes cache besides and is not in the figures."""
    told: Dict[str, str] = {
        "speculative_config": "the cache of the model that drafts is not in the figures",
        "kv_cache_dtype_skip_layers": "layers with another kv_cache_dtype are counted as the rest",
    }
    found = [words for key, words in told.items() if engine.get(key)]
    sizes = [own[key] for key in ("global_head_dim", "swa_head_dim") if own.get(key)]
    if any(size != own.get("head_dim") for size in sizes):
        found.append("some of its layers have heads of another size, which the figures do not show")
    return found
