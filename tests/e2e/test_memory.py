"""The memory plan against the real engine: its figures are those that the engine prints, for models of several architectures.

Tiny models with random weights, one after the other in one process. MODELYARD_ALL_ARCHITECTURES=1 takes all of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, kv_cache
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import plan, weights
from ansible_collections.modelyard.core.plugins.module_utils.survey import models
from e2e_site import runtime_python

pytestmark = pytest.mark.e2e
LIMIT_S = 900
COMMON = {
    **{"vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6},
    **{"dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "hidden_act": "silu"},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False},
}
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 32, "head_dim": 32, "tie_word_embeddings": True}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
LATENT = {
    **{"kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
    **{"n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1},
    **{"topk_group": 1, "scoring_func": "softmax", "norm_topk_prob": False, "routed_scaling_factor": 1.0},
}
DELTA = {
    **{"full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32},
    **{"linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 4, "shared_expert_intermediate_size": 64},
    **{"decoder_sparse_step": 1, "norm_topk_prob": True, "partial_rotary_factor": 0.25, "head_dim": 32},
}
MAMBA = {
    **{"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 2},
    **{"num_experts_per_tok": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 4},
}


def config(model_type: str, layers: int, **changes: Any) -> dict[str, Any]:
    """A config.json of such a model, as small as the engine takes it."""
    return {**COMMON, "model_type": model_type, "num_hidden_layers": layers, **changes}


LLAMA = config("llama", 3, num_attention_heads=8, head_dim=32)
#: name -> (config.json, options of the engine)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama, grouped queries": (LLAMA, {}),
    "gemma3, windows in groups": (config("gemma3_text", 16, sliding_window=512, **GEMMA), {}),
    "deepseek, latent attention": (config("deepseek_v2", 2, num_key_value_heads=4, **MOE, **LATENT), {}),
    "qwen3-next, states": (config("qwen3_next", 4, **MOE, **DELTA), {}),
    "too little memory": (LLAMA, {"kv_cache_memory_bytes": 2**20}),
}
MORE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen2": (config("qwen2", 2, num_attention_heads=2), {}),
    "qwen3": (config("qwen3", 2, head_dim=32, tie_word_embeddings=True), {}),
    "mistral, one window": (config("mistral", 2, head_dim=32, sliding_window=1024), {}),
    "gemma2, every second a window": (config("gemma2", 4, sliding_window=1024, **GEMMA), {}),
    "gpt-oss": (config("gpt_oss", 4, head_dim=32, sliding_window=128, num_local_experts=4, num_experts_per_tok=2), {}),
    "mixtral": (config("mixtral", 2, num_local_experts=4, num_experts_per_tok=2), {}),
    "phi3, fused": (config("phi3", 2, num_key_value_heads=4, original_max_position_embeddings=8192), {}),
    "jamba, mamba": (config("jamba", 8, **MAMBA), {}),
    "32 bits": (LLAMA, {"dtype": "float32"}),
    "blocks of 32": (LLAMA, {"block_size": 32}),
    "windows given up": (config("gemma3_text", 7, sliding_window=512, **GEMMA), {"disable_hybrid_kv_cache_manager": True}),
    "without prefix caching": (config("qwen3_next", 4, **MOE, **DELTA), {"enable_prefix_caching": False}),
}
if os.environ.get("MODELYARD_ALL_ARCHITECTURES"):
    CASES.update(MORE)


def wish(place: int, options: dict[str, Any]) -> dict[str, Any]:
    """The engine's options; each case has another size of the cache, because the engine says the same line only once."""
    usual = {"max_model_len": 4096, "max_num_batched_tokens": 512, "kv_cache_memory_bytes": (64 + place) * 2**20}
    return {**usual, **options}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the engine made of each case, with its log and the folder of the model."""
    folder = tmp_path_factory.mktemp("models")
    asked = {
        f"m{place}": {"config": data, "options": wish(place, options)} for place, (data, options) in enumerate(CASES.values())
    }
    (folder / "cases.json").write_text(json.dumps(asked), encoding="utf-8")
    program = Path(__file__).with_name("engine_cache.py")
    words = [str(runtime_python(tmp_path_factory.mktemp("runtime"))), str(program), str(folder / "cases.json"), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    parts = re.split(r"^CASE (m\d+)$", done.stdout, flags=re.MULTILINE)
    logs = dict(zip(parts[1::2], parts[2::2]))
    assert len(logs) == len(CASES), done.stdout[-2000:] + done.stderr[-4000:]
    told = {}
    for place, name in enumerate(CASES):
        log = logs[f"m{place}"]
        (line,) = re.findall(r"^MADE (.*)$", log, re.MULTILINE)
        told[name] = {**json.loads(line), "log": log, "folder": str(folder / f"m{place}"), "place": place}
    return told


@pytest.mark.parametrize("name", [name for name in CASES if name != "too little memory"])
def test_the_plan_says_what_the_engine_prints(seen: dict[str, dict[str, Any]], name: str) -> None:
    engine = seen[name]
    assert "failed" not in engine, engine["failed"]
    options = wish(engine["place"], CASES[name][1])
    listing = models.model_listing(engine["folder"])
    found = plan.plan(listing, plan.Wanted(options, 1, "cpu", "0.32.0", 0), [plan.Place(0, "start", None, None, None)])
    said = kv_cache.logged(engine["log"])
    assert said is not None, engine["log"][-3000:]
    (row,) = found["rows"]
    concurrency = row["blocks"] / found["kv"]["request_blocks"]
    assert (row["blocks"], found["kv"]["block_tokens"]) == (engine["blocks"], engine["groups"][-1]["block"])
    assert (int(concurrency * 4096), round(concurrency, 2)) == (said.tokens, said.concurrency)
    assert row["fit"] == (row["blocks"] - 1) // found["kv"]["request_blocks"]
    assert (found["weights"]["rank"], found["weights"]["source"], found["gaps"]) == (engine["weights"], "headers", [])


def test_what_is_refused_the_engine_refuses_and_the_longest_that_fits_is_its_own(seen: dict[str, dict[str, Any]]) -> None:
    engine = seen["too little memory"]
    options = wish(engine["place"], CASES["too little memory"][1])
    listing = models.model_listing(engine["folder"])
    found = plan.plan(listing, plan.Wanted(options, 1, "cpu", "0.32.0", 0), [plan.Place(0, "start", None, None, None)])
    (row,) = found["rows"]
    assert (row["verdict"], row["surely"], row["lacks"]) == ("fits with less", True, "request")
    assert "KV cache is needed, which is larger than the available KV cache memory" in engine["failed"]
    (longest,) = re.findall(r"estimated maximum model length is (\d+)", engine["failed"])
    assert int(longest) == row["longest"]


def test_the_weights_of_a_rank_are_split_as_their_layers_are(seen: dict[str, dict[str, Any]]) -> None:
    listing = models.model_listing(seen["llama, grouped queries"]["folder"])
    one, two = (weights.of_rank(listing, {}, ranks) for ranks in (1, 2))
    norms = 7 * 64 * 2
    assert two.rank == (one.rank - norms) // 2 + norms
    assert attention.shape(listing["config"]).kv_heads == 2
