"""config.json of a model against the vLLM that is to load it. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

#: Values of `dtype`, of config.json and of the service (vllm/config/model.py).
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
#: model_type that is refused with 16-bit floats (vllm/config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS).
NO_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
#: From here on `rope_parameters` is read; before only `rope_theta` and `rope_scaling` (transformers_utils/config.py).
ROPE_PARAMETERS = "0.12.0"
#: model_type whose positions turn by rope_theta, which their checkpoints state. Without it the default of transformers holds.
ROTARY = (
    *(
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi3",
        "glm4",
    ),
    *("deepseek_v2", "deepseek_v3", "internlm2", "granite", "starcoder2", "cohere", "cohere2", "olmo2", "exaone4", "smollm3"),
)


def findings(wanted: Mapping[str, Any], listing: Mapping[str, Any], where: str, release: str) -> List[Dict[str, str]]:
    """What the release refuses of a config.json, and what it would load silently in another way than it was trained."""
    config = listing["config"] or {}
    if not config or "hf_overrides" in wanted["engine"]:
        return []  # then config.json does not decide alone
    refused = [*_architecture(config, release), *_dtype(config, wanted["engine"]), *_rope(config, release), *_windows(config)]
    doubted = [*_unknown(config, release, wanted["engine"]), *_rope_default(config)]
    place, name = f"{where}/config.json", wanted["name"]
    return [
        *(finding("PF-MODEL-CONFIG", place, f"{name}: {what}", do) for what, do in refused),
        *(finding("PF-MODEL-DOUBT", place, f"{name}: {what}", do) for what, do in doubted),
    ]


def served(architecture: str, release: str) -> Optional[bool]:
    """Does a release of vLLM serve an architecture by itself? None where the releases that were read do not tell."""
    table = tables.architectures()
    history = table["architectures"].get(architecture)
    now, known = order(release), [order(name) for name in table["releases"]]
    if not known[0] <= now <= known[-1]:
        return None
    if history is None:
        return False
    before, after = [name for name in known if name <= now], [name for name in known if name >= now]
    around = {_at(history, name) for name in (before[-1:] + after[:1])}
    return around.pop() == "there" if before and len(around) == 1 else None


def _at(history: Mapping[str, str], now: Any) -> str:
    held = [kind for since, kind in history.items() if order(since) <= now]
    return held[-1] if held else ""


def _named(config: Mapping[str, Any]) -> List[str]:
    said = config.get("architectures")
    return [str(name) for name in said] if isinstance(said, list) else []


def _gone(architecture: str, release: str) -> bool:
    """Had an earlier release it, and this one has not?"""
    history = tables.architectures()["architectures"].get(architecture, {})
    return served(architecture, release) is False and _at(history, order(release)) == "gone"


def _architecture(config: Mapping[str, Any], release: str) -> List[Any]:
    names = _named(config)
    if not names:
        do = "take config.json from the model's original folder; it names the class in `architectures`"
        return [("it does not name an architecture, and vLLM knows no model without it", do)]
    if not all(_gone(name, release) for name in names):
        return []
    since = next(s for s, kind in tables.architectures()["architectures"][names[0]].items() if kind == "gone")
    return [
        (
            f"{names[0]} is served no more by vLLM {release} (gone in {since} at the latest)",
            "serve it from a runtime with an earlier vLLM",
        )
    ]


def _unknown(config: Mapping[str, Any], release: str, engine: Mapping[str, Any]) -> List[Any]:
    names = _named(config)
    if not names or engine.get("model_impl") == "transformers" or any(served(name, release) is not False for name in names):
        return []
    if all(_gone(name, release) for name in names):
        return []
    history = tables.architectures()["architectures"].get(names[0], {})
    later = next((since for since in history if order(since) > order(release)), "")
    known = f"; {later} has it" if later else ""
    what = f"vLLM {release} has no {names[0]} of its own{known}: it tries the model's code in transformers, or refuses it"
    return [(what, "see that it starts once with this release, or take a release that has it")]


def _dtype(config: Mapping[str, Any], engine: Mapping[str, Any]) -> List[Any]:
    asked, said = str(engine.get("dtype") or "auto"), attention.dtype(config, engine)
    kind = str(attention.text_part(config).get("model_type") or config.get("model_type"))
    if asked == "auto" and said not in DTYPES:
        return [(f"its numbers are of the type {said}, which the engine does not compute in", "set engine.dtype: bfloat16")]
    if said in ("float16", "half") and kind in NO_FLOAT16 and asked != "auto":
        return [
            (f"models of the type {kind} do not compute in float16, which engine.dtype asks for", "set engine.dtype: bfloat16")
        ]
    return []


def _rope(config: Mapping[str, Any], release: str) -> List[Any]:
    """A checkpoint that transformers 5 has written, in a vLLM that reads rope_theta only."""
    own = attention.text_part(config)
    if not isinstance(own.get("rope_parameters"), dict) or "rope_theta" in own or order(release) >= order(ROPE_PARAMETERS):
        return []
    theta = own["rope_parameters"].get("rope_theta")
    what = (
        f"it has rope_parameters and no rope_theta: vLLM {release} reads only the latter, and fails with KeyError: 'rope_theta' "
        "or computes with the default of another model"
    )
    do = f'add "rope_theta": {theta} beside it' if isinstance(theta, (int, float)) else "add rope_theta beside it"
    return [(what, f"{do} (and rope_scaling where rope_parameters has a rope_type), or take vLLM {ROPE_PARAMETERS} or newer")]


def _rope_default(config: Mapping[str, Any]) -> List[Any]:
    own = attention.text_part(config)
    if own.get("model_type") not in ROTARY or any(key in own for key in ("rope_theta", "rope_parameters", "rotary_emb_base")):
        return []
    what = "it states no rope_theta: the default of transformers holds, silently, also where the model was trained with another"
    return [(what, "take config.json from the model's original folder; Qwen2.5 and Llama 3 have other values than the default")]


def _windows(config: Mapping[str, Any]) -> List[Any]:
    own = attention.text_part(config)
    layers, first = attention.whole(own, "num_hidden_layers"), attention.whole(own, "max_window_layers")
    kind = own.get("model_type")
    if kind not in ("qwen2", "qwen2_moe") or not own.get("use_sliding_window") or not own.get("sliding_window"):
        return []
    if not layers or not first or first >= layers:
        return []
    what = (
        f"use_sliding_window with max_window_layers {first} of {layers} layers: vLLM serves a window for all layers or for none"
    )
    return [(what, "set use_sliding_window to false there, which gives up the window, or serve it with another engine")]
