"""The memory of a KV cache, held against what engines have printed and against the shapes of published models."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, kv_cache
from ansible_collections.modelyard.core.plugins.module_utils.plan.attention import (
    CHUNKED,
    FULL,
    LATENT,
    SLIDING,
    STATE,
    Kind,
    Layout,
)
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

GIB = 2**30
LOGS = worlds.ROOT / "tests/fixtures/vllm-logs-0.32.0-cpu"

# As their config.json are, as far as it matters here.
TINY = {
    **{"model_type": "qwen3", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    "dtype": "bfloat16",
}
QWEN3_14B = {
    **{"model_type": "qwen3", "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128},
    **{"hidden_size": 5120, "torch_dtype": "bfloat16", "sliding_window": None, "use_sliding_window": False},
    "max_window_layers": 40,
}
QWEN2_1_5B = {
    **{"model_type": "qwen2", "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2},
    **{"hidden_size": 1536, "torch_dtype": "bfloat16", "sliding_window": 32768, "use_sliding_window": False},
    "max_window_layers": 28,
}
MINICPM_V_4_5 = {
    **{"model_type": "minicpmv", "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"head_dim": 128, "hidden_size": 4096, "torch_dtype": "bfloat16", "vision_config": {"num_hidden_layers": 27}},
}
LLAMA_3_1_8B = {
    **{"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"hidden_size": 4096, "torch_dtype": "bfloat16"},
}
DEEPSEEK_V2 = {
    **{"model_type": "deepseek_v2", "num_hidden_layers": 60, "num_attention_heads": 128, "num_key_value_heads": 128},
    **{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "hidden_size": 5120, "torch_dtype": "bfloat16"},
}
DEEPSEEK_V2_LITE = {**DEEPSEEK_V2, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16}
GEMMA_2_9B = {
    **{"model_type": "gemma2", "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256},
    **{"sliding_window": 4096, "torch_dtype": "bfloat16"},
}
GEMMA_3_27B = {
    "model_type": "gemma3",
    "text_config": {
        **{"model_type": "gemma3_text", "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16},
        **{"head_dim": 128, "sliding_window": 1024},
    },
    "torch_dtype": "bfloat16",
}
GPT_OSS_20B = {
    **{"model_type": "gpt_oss", "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64},
    **{"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12, "torch_dtype": "bfloat16"},
}
LLAMA_4 = {
    "text_config": {
        **{"model_type": "llama4_text", "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8},
        **{"head_dim": 128, "attention_chunk_size": 8192, "torch_dtype": "bfloat16"},
    }
}
QWEN3_NEXT = {
    **{"model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2},
    **{"head_dim": 256, "full_attention_interval": 4, "torch_dtype": "bfloat16"},
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    "linear_conv_kernel_dim": 4,
}
JAMBA = {
    **{"attn_layer_period": 8, "attn_layer_offset": 4, "hidden_size": 64, "mamba_expand": 2, "mamba_d_state": 16},
    "mamba_d_conv": 4,
}
NEMOTRON = {
    **{"num_hidden_layers": 4, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1},
    "conv_kernel": 4,
}


def made(config, tp=1, backend="nvidia", **engine):
    return kv_cache.cache(attention.layout(config, engine, tp), engine, backend)


@pytest.mark.parametrize(
    ("config", "tp", "engine", "kib"),
    [
        (QWEN3_14B, 1, {}, 160),
        (QWEN3_14B, 2, {}, 80),
        (QWEN3_14B, 16, {}, 20),  # each rank has one KV head at least
        (QWEN3_14B, 1, {"kv_cache_dtype": "fp8"}, 80),
        (QWEN3_14B, 1, {"kv_cache_dtype": "fp8_per_token_head"}, 40 * 8 * (256 + 8) / 1024),
        (QWEN3_14B, 1, {"dtype": "float32"}, 320),
        ({**QWEN3_14B, "torch_dtype": "float32"}, 1, {}, 160),  # auto makes 16 bits of 32
        (QWEN2_1_5B, 1, {}, 28),
        (MINICPM_V_4_5, 1, {}, 144),
        (LLAMA_3_1_8B, 1, {}, 128),
        (DEEPSEEK_V2, 1, {}, 67.5),
        (DEEPSEEK_V2, 8, {}, 67.5),  # a latent cache is the same on every rank
        (DEEPSEEK_V2, 1, {"kv_cache_dtype": "fp8_ds_mla"}, 60 * 656 / 1024),
        (GEMMA_2_9B, 1, {}, 336),
        (GEMMA_3_27B, 1, {}, 496),
        (GPT_OSS_20B, 1, {}, 48),
        (LLAMA_4, 1, {}, 192),
        (QWEN3_NEXT, 1, {}, 24),  # only every fourth layer has a KV cache
    ],
)
def test_bytes_of_a_token_are_those_of_published_models(config, tp, engine, kib):
    assert kv_cache.token_bytes(made(config, tp, **engine)) == kib * 1024


def test_layers_and_heads_are_counted():
    # A formula that forgets them says 4 MB for what is many gigabytes: 256 requests of 2048 tokens of Qwen2-1.5B.
    found = made(QWEN2_1_5B)
    assert 256 * kv_cache.request_bytes(found, 2048) == 14 * GIB
    assert kv_cache.request_bytes(found, 32768) == 896 * 2**20
    assert kv_cache.request_bytes(made(QWEN3_14B), 32768) == 5 * GIB


@pytest.mark.parametrize(("name", "tp"), [("worker-sigkilled.log", 1), ("tp2-sigterm-inflight-request.log", 2)])
def test_it_agrees_with_what_a_real_engine_logged(name, tp):
    said = kv_cache.logged((LOGS / name).read_text(encoding="utf-8"))
    found = made(TINY, tp, backend="cpu")
    assert (said.length, said.concurrency) == (2048, 1024.0 * tp)
    assert said.tokens == GIB // kv_cache.token_bytes(found)
    assert kv_cache.pool_of_log(found, said) == kv_cache.pool_of_bytes(found, GIB)
    assert kv_cache.fit(found, 2048, kv_cache.pool_of_log(found, said)) == 1024 * tp - 1  # one block is never given away


@pytest.mark.parametrize(
    ("config", "tp", "gib", "tokens", "length", "concurrency"),
    [
        (QWEN3_14B, 1, 6.51, 42656, 32768, 1.30),  # LMCache/LMCache#1739
        (LLAMA_3_1_8B, 1, 3.81, 31232, 20000, 1.56),  # vllm-project/vllm#10517: 1952 blocks
        (LLAMA_3_1_8B, 1, 2.89, 23648, 29000, 0.82),  # the same: 1478 blocks
    ],
)
def test_it_agrees_with_what_others_have_reported(config, tp, gib, tokens, length, concurrency):
    found = made(config, tp)
    pool = tokens // 16
    assert kv_cache.pool_of_bytes(found, (gib + 0.005) * GIB) >= pool >= kv_cache.pool_of_bytes(found, (gib - 0.005) * GIB)
    text = f"GPU KV cache size: {tokens:,} tokens\nMaximum concurrency for {length:,} tokens per request: {concurrency}x"
    assert kv_cache.pool_of_log(found, kv_cache.logged(text)) == pool
    assert round(pool / kv_cache.blocks(found, length), 2) == concurrency
    assert bool(kv_cache.fit(found, length, pool)) is (concurrency > 1)


def test_the_need_of_a_latent_cache_is_what_the_engine_refused_with():
    # vllm-project/vllm#15871: 0.95 GiB KV cache is needed for 32768 tokens of DeepSeek-V2-Lite.
    assert round(kv_cache.request_bytes(made(DEEPSEEK_V2_LITE), 32768) / GIB, 2) == 0.95


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (GEMMA_2_9B, [(FULL, 21, 0), (SLIDING, 21, 4096)]),
        (GEMMA_3_27B, [(FULL, 10, 0), (SLIDING, 52, 1024)]),
        (GPT_OSS_20B, [(FULL, 12, 0), (SLIDING, 12, 128)]),
        ({**GPT_OSS_20B, "layer_types": None}, [(FULL, 12, 0), (SLIDING, 12, 128)]),
        (LLAMA_4, [(FULL, 12, 0), (CHUNKED, 36, 8192)]),
        (QWEN3_NEXT, [(FULL, 12, 0), (STATE, 36, 0)]),
        ({**TINY, "model_type": "jamba", "num_hidden_layers": 8, **JAMBA}, [(FULL, 1, 0), (STATE, 7, 0)]),
        ({**TINY, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*", **NEMOTRON}, [(FULL, 1, 0), (STATE, 2, 0)]),
        (DEEPSEEK_V2, [(LATENT, 60, 0)]),
        ({**LLAMA_3_1_8B, "model_type": "mistral", "sliding_window": 4096}, [(SLIDING, 32, 4096)]),
        ({**QWEN2_1_5B, "use_sliding_window": True, "max_window_layers": 20}, [(FULL, 20, 0), (SLIDING, 8, 32768)]),
        ({**TINY, "layer_types": ["full_attention", "linear_attention"]}, [(FULL, 1, 0)]),
        ({**TINY, "num_hidden_layers": 4, "num_kv_shared_layers": 2}, [(FULL, 2, 0)]),
    ],
)
def test_kinds_of_layers_are_told_apart(config, kinds):
    assert [(kind.name, kind.layers, kind.window) for kind in attention.layout(config).kinds] == kinds


def test_a_state_makes_blocks_long_and_costs_a_request_the_same_at_any_length():
    # Qwen3-Next 80B: of a layer, 3 x 8192 numbers of the convolution and 32 heads of 128 x 128, in 2 bytes.
    found = made(QWEN3_NEXT)
    assert found.layout.kinds[1].state_bytes == 3 * 8192 * 2 + 32 * 128 * 128 * 2
    assert found.block_size == 16 * -(-1097728 // (16 * 2048)) == 544  # 2 KV heads of 256 numbers, 2 bytes
    assert kv_cache.blocks(found, 54400) == 100 + 3 * 2
    assert kv_cache.blocks(made(QWEN3_NEXT, enable_prefix_caching=False), 54400) == 100 + 3
    half = made(QWEN3_NEXT, 2).layout.kinds
    assert [kind.token_bytes + kind.state_bytes for kind in half] == [1024, 1097728 // 2]


def test_layers_with_a_state_that_is_not_known_are_said_to_be_missing_in_the_figures():
    unknown = {**TINY, "layer_types": ["full_attention", "linear_attention"]}
    assert attention.layout(unknown).gaps == ("1 layers keep a state of fixed size instead, which is not in the figures",)
    assert attention.layout(GEMMA_3_27B).gaps == ()
    assert attention.layout({**TINY, "layer_types": ["mamba"] * 2}).kinds == ()
    (gap,) = attention.layout(TINY, {"speculative_config": {"method": "eagle"}}).gaps
    assert "drafts" in gap


@pytest.mark.parametrize(
    ("config", "engine", "why"),
    [
        ({}, {}, "config.json does not tell num_hidden_layers, num_attention_heads, head_dim"),
        ({**TINY, "kv_lora_rank": 8}, {}, "latent attention of a kind that is not known here (model_type qwen3)"),
        ({**DEEPSEEK_V2, "qk_rope_head_dim": None}, {}, "does not tell kv_lora_rank"),
        (TINY, {"kv_cache_dtype": "nvfp4"}, "kv_cache_dtype nvfp4 depends on the engine's backend"),
        ({**TINY, "is_encoder_decoder": True}, {}, "an encoder and a decoder"),
    ],
)
def test_what_is_not_known_is_not_guessed(config, engine, why):
    found = attention.layout(config, engine)
    assert found.kinds == ()
    assert why in found.gaps[0]


def test_a_checkpoint_can_say_that_its_cache_has_8_bits():
    scheme = {**QWEN3_14B, "quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
    assert kv_cache.token_bytes(made(scheme)) == 80 * 1024
    assert kv_cache.token_bytes(made(scheme, kv_cache_dtype="bfloat16")) == 160 * 1024
    named = {**QWEN3_14B, "quantization_config": {"quantization": {"kv_cache_quant_algo": "FP8"}}}
    assert kv_cache.token_bytes(made(named)) == 80 * 1024


def test_a_window_bounds_what_a_long_request_costs():
    found = made(GEMMA_3_27B)
    # 10 layers a group: 1 group sees everything, 6 see a window of 1024 and what is on its way (2 x 2048 tokens).
    assert kv_cache.group_layers(found) == 10
    window = -(-(1023 + 4096) // 16) + 1
    assert kv_cache.blocks(found, 131072) == 131072 // 16 + 6 * window
    without = made(GEMMA_3_27B, disable_hybrid_kv_cache_manager=True)
    assert kv_cache.request_bytes(without, 131072) == 62 * GIB
    assert kv_cache.request_bytes(found, 131072) < 13 * GIB
    same = made({**GPT_OSS_20B, "layer_types": ["sliding_attention"] * 11 + ["full_attention"] * 13})
    assert kv_cache.group_layers(same) == 13


def test_the_two_meanings_of_the_logged_tokens_are_told_apart():
    found = made(GPT_OSS_20B)
    pool, length = 100_000, 131072
    concurrency = pool / kv_cache.blocks(found, length)
    later = f"tokens, Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x"
    said = kv_cache.logged(f"GPU KV cache size: {int(concurrency * length):,} {later}")
    assert abs(kv_cache.pool_of_log(found, said) - pool) <= 1
    said = kv_cache.logged(f"GPU KV cache size: {pool // 2 * 16:,} tokens\nINFO x\n")
    assert said.length is None
    earlier = f"GPU KV cache size: {pool // 2 * 16:,} tokens\nINFO 11-29 Maximum concurrency for {length:,} tokens per request: "
    assert kv_cache.pool_of_log(found, kv_cache.logged(f"{earlier}{concurrency:.2f}x")) == pool


def test_the_last_start_in_a_log_counts_and_another_log_says_nothing():
    assert kv_cache.logged("nothing of it") is None
    text = "Available KV cache memory: 1.00 GiB\nGPU KV cache size: 16 tokens\n\n\nAvailable KV cache memory: 5.63 GiB\n"
    said = kv_cache.logged(text + "GPU KV cache size: 1,600 tokens, Maximum concurrency for 800 tokens per request: 2.00x")
    assert said == kv_cache.Logged(1600, 800, 2.0, 5.63)


LAYOUTS = st.builds(
    Layout,
    st.lists(
        st.builds(Kind, st.sampled_from([FULL, SLIDING, CHUNKED]), st.integers(1, 80), st.integers(0, 8192), st.just(512)),
        min_size=1,
        max_size=3,
        unique_by=lambda kind: kind.name,
    ).map(tuple),
)
CACHES = st.builds(kv_cache.Cache, LAYOUTS, st.sampled_from([1, 16, 128]), st.integers(0, 8192))


@given(CACHES, st.integers(1, 200_000), st.integers(1, 200_000))
def test_a_longer_request_never_costs_less(found, one, other):
    short, long = sorted((one, other))
    assert 0 < kv_cache.request_bytes(found, short) <= kv_cache.request_bytes(found, long)


@given(CACHES, st.integers(0, 100_000))
def test_the_longest_request_fits_and_the_next_one_does_not(found, pool):
    length = kv_cache.longest(found, pool, 50_000)
    assert length == 0 or kv_cache.fit(found, length, pool) >= 1
    assert length == 50_000 or kv_cache.fit(found, length + 1, pool) == 0


@given(CACHES, st.integers(1, 200_000), st.integers(1, 100_000))
def test_what_fits_is_never_more_than_the_memory_holds(found, tokens, pool):
    count = kv_cache.fit(found, tokens, pool)
    assert count * kv_cache.request_bytes(found, tokens) <= pool * kv_cache.block_bytes(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
)
KEYS = sorted(set(re.findall(r'"([a-z_]+)":', json.dumps([GEMMA_3_27B, DEEPSEEK_V2, GPT_OSS_20B, LLAMA_4, QWEN3_NEXT]))))


@given(st.dictionaries(st.sampled_from([*KEYS, "quantization_config", "num_kv_shared_layers", "no_rope_layers"]), JSON))
def test_a_strange_config_is_no_crash(config):
    found = attention.layout(config)
    assert found.kinds or found.gaps
    if found.kinds:
        assert kv_cache.request_bytes(kv_cache.cache(found, {}, ""), 1000) > 0
