"""The memory plan: weights over ranks, what is left on a card, what is sure and what is an estimate, what to change."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import budget, estimates, plan, weights, words
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

GIB = 2**30
#: Qwen/Qwen3-14B, as its config.json is.
QWEN3_14B = {
    **{"model_type": "qwen3", "num_attention_heads": 40, "num_key_value_heads": 8, "num_hidden_layers": 40, "head_dim": 128},
    **{"hidden_size": 5120, "intermediate_size": 17408, "vocab_size": 151936, "torch_dtype": "bfloat16"},
    **{"max_position_embeddings": 40960, "tie_word_embeddings": False},
}


def tensor(name, shape, dtype="BF16", count=1, **changes):
    """An entry as survey.safetensors.summed has it."""
    numbers = count
    for size in shape:
        numbers *= size
    bytes_ = numbers * {"BF16": 2, "F32": 4, "I32": 4, "F16": 2, "U8": 1, "F8_E4M3": 1}[dtype]
    entry = {"name": name, "dtype": dtype, "dims": len(shape), "count": count, "numbers": numbers, "bytes": bytes_}
    return {**entry, "beyond": False, **changes}


#: The tensors of Qwen3-14B: 14.8 billion numbers.
QWEN3_14B_TENSORS = [
    tensor("model.embed_tokens.weight", [151936, 5120]),
    tensor("lm_head.weight", [151936, 5120]),
    tensor("model.norm.weight", [5120]),
    *(tensor(f"model.layers.*.{norm}_layernorm.weight", [5120], count=40) for norm in ("input", "post_attention")),
    *(tensor(f"model.layers.*.self_attn.{name}_norm.weight", [128], count=40) for name in "qk"),
    tensor("model.layers.*.self_attn.q_proj.weight", [5120, 5120], count=40),
    *(tensor(f"model.layers.*.self_attn.{name}_proj.weight", [1024, 5120], count=40) for name in "kv"),
    tensor("model.layers.*.self_attn.o_proj.weight", [5120, 5120], count=40),
    *(tensor(f"model.layers.*.mlp.{name}_proj.weight", [17408, 5120], count=40) for name in ("gate", "up", "down")),
]


def listing(config=QWEN3_14B, tensors=QWEN3_14B_TENSORS, **changes):
    return worlds.listing(config=config, tensors=tensors, **changes)


def rank(tensors, tp=1, config=QWEN3_14B, **engine):
    return weights.of_rank({"config": config, "tensors": tensors, "exists": True}, engine, tp)


def test_the_weights_of_a_published_model_are_what_engines_report():
    # "Model loading took 27.52 GiB" for Qwen3-14B in 16 bits; over 2 ranks half of it and the norms.
    one, two = rank(QWEN3_14B_TENSORS), rank(QWEN3_14B_TENSORS, 2)
    assert round(one.rank / GIB, 2) == 27.51
    norms = 2 * (5120 + 40 * 2 * 5120 + 40 * 2 * 128)
    assert two.rank == (one.rank - norms) // 2 + norms
    assert (one.source, one.gaps, one.least) == ("headers", (), one.rank)


@pytest.mark.parametrize(
    ("entry", "tp", "part"),
    [
        (tensor("model.layers.*.mlp.up_proj.weight", [64, 64]), 4, 4),
        (tensor("model.layers.*.self_attn.k_proj.weight", [64, 64]), 8, 8),
        (tensor("model.layers.*.self_attn.k_proj.weight", [64, 64]), 16, 8),  # 8 KV heads: 16 ranks have one each all the same
        (tensor("model.layers.*.mlp.experts.*.down_proj.weight", [64, 64]), 4, 4),
        (tensor("model.layers.*.mlp.gate.weight", [64, 64]), 4, 1),  # the router, and not gate_proj
        (tensor("model.layers.*.mlp.gate_proj.weight", [64, 64]), 4, 4),
        (tensor("model.layers.*.self_attn.kv_a_proj_with_mqa.weight", [64, 64]), 4, 1),
        (tensor("model.layers.*.self_attn.kv_b_proj.weight", [64, 64]), 4, 4),
        (tensor("model.layers.*.input_layernorm.weight", [64]), 4, 1),
        (tensor("visual.blocks.*.attn.qkv.weight", [64, 64]), 4, 1),
    ],
)
def test_what_a_rank_has_of_a_tensor(entry, tp, part):
    assert rank([entry], tp, {**QWEN3_14B, "vocab_size": 64}).rank == entry["bytes"] // part


def test_of_a_part_that_sees_pictures_only_the_even_share_is_sure():
    found = rank([tensor("visual.blocks.*.attn.qkv.weight", [64, 64])], 4)
    assert found.least * 4 == found.rank


@pytest.mark.parametrize(
    ("entry", "engine", "config", "size"),
    [
        (tensor("a.up_proj.weight", [64, 64], "F32"), {}, {}, 8192),  # auto makes 16 bits of 32
        (tensor("a.up_proj.weight", [64, 64], "BF16"), {"dtype": "float32"}, {}, 16384),
        (tensor("a.up_proj.qweight", [8, 64], "I32"), {}, {}, 2048),  # GPTQ, AWQ: packed, as on the disk
        (tensor("a.up_proj.scales", [1, 64], "F16"), {}, {}, 128),
        (tensor("a.up_proj.weight", [2048, 1], "U8"), {}, {}, 2048),  # bitsandbytes, 4 bits
        (tensor("a.up_proj.weight", [64, 64], "F8_E4M3"), {}, {}, 4096),
        (tensor("a.up_proj.weight_scale_inv", [1, 1], "F32"), {}, {}, 4),
        (tensor("a.mixer.A_log", [64], "BF16"), {}, {}, 256),
        (tensor("a.up_proj.weight", [64, 64]), {"quantization": "fp8"}, {}, 4096),  # made smaller while it is loaded
        (tensor("a.input_layernorm.weight", [64]), {"quantization": "fp8"}, {}, 128),
        (tensor("lm_head.weight", [64, 64]), {}, {"tie_word_embeddings": True}, 0),
        (tensor("lm_head.weight", [64, 64]), {}, {}, 8192),
        (tensor("model.layers.*.up_proj.weight", [64, 64], beyond=True), {}, {}, 0),  # a draft model's
        (tensor("model.layers.*.self_attn.rotary_emb.inv_freq", [64], "F32"), {}, {}, 0),
    ],
)
def test_bytes_in_memory_are_those_of_the_type_that_the_engine_makes(entry, engine, config, size):
    assert rank([entry], config={**QWEN3_14B, "vocab_size": 64, **config}, **engine).rank == size


def test_a_vocabulary_is_padded_before_it_is_split():
    found = rank([tensor("model.embed_tokens.weight", [100, 5120])], 2, {**QWEN3_14B, "vocab_size": 100})
    assert found.rank == 128 // 2 * 5120 * 2


def test_without_headers_files_are_split_evenly_and_nothing_is_sure_of_it():
    found = weights.of_rank(worlds.listing(files={"model.safetensors": 10 * GIB}), {}, 4)
    assert (found.rank, found.source) == (10 * GIB // 4, "sizes")
    assert "sizes of files" in found.gaps[0]
    assert weights.of_rank(worlds.listing(exists=False), {}, 1).source == "nothing"


#: What engines have printed of themselves; the places stand in data/memory.yml.
REPORTS = [
    (
        "Llama 3 8B",
        {"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256},
        {"max_num_batched_tokens": 8192},
        1,
        1.26,
    ),
    (
        "Qwen2.5 32B",
        {"hidden_size": 5120, "intermediate_size": 27648, "vocab_size": 152064},
        {"max_num_batched_tokens": 2048},
        2,
        1.26,
    ),
    (
        "Qwen2.5 7B",
        {"hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064},
        {"max_num_batched_tokens": 4096},
        1,
        1.42,
    ),
    (
        "QwQ 32B",
        {"hidden_size": 5120, "intermediate_size": 27648, "vocab_size": 152064},
        {"max_num_batched_tokens": 2048},
        1,
        1.39,
    ),
]


@pytest.mark.parametrize(("name", "config", "options", "tp", "gib"), REPORTS, ids=[report[0] for report in REPORTS])
def test_the_estimate_of_activations_is_near_what_engines_have_printed(name, config, options, tp, gib):
    engine = estimates.engine({"max_num_seqs": 256, **options}, "0.8.0", 48 * GIB)
    found = estimates.besides({**config, "torch_dtype": "bfloat16"}, options, engine, tp)
    assert found.activation / GIB == pytest.approx(gib, rel=0.5)


@pytest.mark.parametrize(
    ("shown_mib", "cuda_gib"), [(24564, 23.58), (81920, 79.22), (46068, 44.42), (32607, 31.37), (143771, 139.72)]
)
def test_what_cuda_gives_away_of_a_card_is_near_what_engines_have_printed(shown_mib, cuda_gib):
    assert estimates.usable(shown_mib * 2**20) / GIB == pytest.approx(cuda_gib, rel=0.012)


@pytest.mark.parametrize(
    ("release", "gib", "share", "batched", "seqs", "inside"),
    [
        ("0.11.0", 24, 0.9, 2048, 256, False),
        ("0.19.1", 24, 0.9, 2048, 256, False),
        ("0.20.0", 24, 0.92, 2048, 256, True),
        ("0.32.0", 80, 0.92, 8192, 1024, True),
        ("", 80, 0.92, 8192, 1024, True),
        ("dev", 24, 0.92, 2048, 256, True),  # a build that says no release
    ],
)
def test_defaults_are_those_of_the_release_and_the_card(release, gib, share, batched, seqs, inside):
    found = estimates.engine({}, release, gib * GIB)
    assert (found.share, found.batched, found.seqs, found.graphs_inside) == (share, batched, seqs, inside)
    set_by_hand = estimates.engine(
        {"gpu_memory_utilization": "0.5", "max_num_seqs": 4, "enforce_eager": True}, release, gib * GIB
    )
    assert (set_by_hand.share, set_by_hand.seqs, set_by_hand.eager) == (0.5, 4, True)


def planned(found=None, tp=1, total=48 * GIB, others=0, beside=0, **engine):
    wanted = plan.Wanted({"max_model_len": 32768, **engine}, tp, "nvidia", "0.32.0")
    places = [plan.Place(0, "start", card, total, others, beside) for card in range(tp)]
    return plan.plan(found or listing(), wanted, places)


def test_a_model_that_fits_tells_with_how_many_requests():
    found = planned()
    (row,) = found["rows"]
    assert (found["verdict"], found["surely"], found["change"]) == ("fits", False, [])
    # 48 GiB x 0.985 x 0.92 = 43.5 asked; 27.5 weights; what is left is blocks of 16 x 160 KiB.
    assert round(row["asked"] / GIB, 1) == 43.5
    told = row["estimated"]
    assert row["cache"] == row["asked"] - row["weights"] - told["activation"] - told["context"] - told["graphs"]
    assert row["blocks"] == row["cache"] // (16 * 160 * 1024)
    assert row["fit"] == (row["blocks"] - 1) // 2048 == 2


def test_graphs_come_on_top_before_0_20():
    wanted = plan.Wanted({"max_model_len": 32768}, 1, "nvidia", "0.11.0")
    (row,) = plan.plan(listing(), wanted, [plan.Place(0, "start", 0, 48 * GIB, 0)])["rows"]
    told = row["estimated"]
    assert row["cache"] == row["asked"] - row["weights"] - told["activation"] - told["context"]


def test_what_does_not_fit_by_exact_figures_is_sure_and_says_what_would():
    found = planned(total=24 * GIB)
    (row,) = found["rows"]
    assert (found["verdict"], found["surely"], row["lacks"]) == ("does not fit", True, "weights")
    assert found["change"] == ["topology.tensor_parallel_size: 2 would fit, on cards like these"]


def test_a_request_that_is_too_long_is_given_the_longest_that_fits():
    found = planned(total=39 * GIB, max_model_len=40960)
    (row,) = found["rows"]
    assert (found["verdict"], found["surely"], row["lacks"], row["fit"]) == ("fits with less", False, "request", 0)
    assert found["change"][0] == f"engine.max_model_len: {row['longest']} is the longest that fits"
    assert planned(total=39 * GIB, max_model_len=row["longest"])["verdict"] == "fits"
    assert planned(total=39 * GIB, max_model_len=row["longest"] + 16)["verdict"] == "fits with less"
    for key in ("kv_cache_dtype: fp8", "max_num_seqs: 64", "gpu_memory_utilization: 0.95", "tensor_parallel_size: 2"):
        assert any(key in line for line in found["change"]), key


def test_every_change_that_is_advised_makes_it_fit():
    for total in (26, 30, 34, 38):
        found = planned(total=total * GIB, max_model_len=40960)
        for line in found["change"]:
            if "would fit" not in line or "topology" in line:
                continue
            change = dict(part.removeprefix("engine.").split(": ") for part in line.removesuffix(" would fit").split(", "))
            engine = {key: True if value == "True" else value for key, value in change.items()}
            assert planned(total=total * GIB, **{"max_model_len": 40960, **engine})["verdict"] == "fits", (total, line)


def test_memory_of_others_counts_against_the_start_whatever_the_model_needs():
    small = listing(tensors=[worlds.tensors(1)])
    found = planned(small, others=10 * GIB)
    (row,) = found["rows"]
    assert (found["verdict"], found["surely"], row["lacks"]) == ("does not fit", True, "free")
    (line,) = [line for line in found["change"] if "gpu_memory_utilization" in line]
    share = float(line.split(": ")[1].split()[0])
    assert 0.7 < share < 0.79
    assert planned(small, others=10 * GIB, gpu_memory_utilization=share)["verdict"] == "fits"
    assert planned(small, beside=10 * GIB)["rows"][0]["lacks"] == "free"
    assert planned(small, others=None)["verdict"] == "fits"


def test_a_size_of_the_cache_that_is_set_replaces_the_share_and_not_the_look_at_what_is_free():
    found = planned(kv_cache_memory_bytes=10 * GIB)
    assert (found["verdict"], found["rows"][0]["cache"], found["rows"][0]["fit"]) == ("fits", 10 * GIB, 1)
    assert planned(kv_cache_memory_bytes=GIB)["rows"][0]["surely"] is True
    assert planned(kv_cache_memory_bytes=30 * GIB)["rows"][0]["lacks"] == "weights"
    assert planned(kv_cache_memory_bytes=10 * GIB, others=8 * GIB)["rows"][0]["lacks"] == "free"


@pytest.mark.parametrize("total", [None, 48 * GIB])
def test_what_is_not_known_is_said_to_be_unknown(total):
    found = planned(worlds.listing(exists=False), total=total)
    assert (found["verdict"], found["surely"], found["change"]) == ("unknown", False, [])
    assert "unknown" in words.report([{"name": "a", "memory": found, "advice": []}], "box")


def test_on_cpus_all_of_it_is_exact():
    wanted = plan.Wanted({"max_model_len": 32768}, 1, "cpu", "0.32.0", GIB)
    found = plan.plan(listing(), wanted, [plan.Place(0, "start", None, None, None)])
    (row,) = found["rows"]
    # 1 GiB is 51 blocks of 128 tokens, one of which is never given away.
    assert (row["blocks"], row["longest"], row["surely"]) == (51, 50 * 128, True)
    assert found["change"] == [
        "engine.max_model_len: 6400 is the longest that fits",
        "engine.kv_cache_memory_bytes: 5389680640 would fit",
    ]


def test_the_table_shows_every_card_and_marks_what_is_estimated():
    plans = planner.plan(worlds.intent(worlds.gpu_service()), worlds.nvidia(models={worlds.MODEL: listing()}))
    lines = words.report(plans["services"], "box").splitlines()
    assert lines[0] == "Memory plan for box"
    assert lines[1].startswith("qwen3-14b-32k: fits: 14 GiB weights, 27 GiB KV cache of 48 GiB a card, ")
    assert lines[1].endswith(" request(s) of 4096 tokens at once (estimated)")
    assert [line.split()[:2] for line in lines[3:5]] == [["0", "0"], ["0", "1"]]
    assert "* estimated before a start" in lines[5]
    assert "weights: 28 GiB on disk, 14 GiB on each of 2 rank(s) (headers of the files)" in lines[6]
    assert "KV cache: 80 KiB a token and rank; blocks of 16 tokens (1.2 MiB); layers: 40 full" in lines[7]
    assert any(line.startswith("  advice: data parallel would do") for line in lines)


def test_a_service_that_stays_as_it_is_has_a_plan_and_no_finding():
    seen = worlds.nvidia(models={worlds.MODEL: listing()})
    kept = worlds.kept(worlds.gpu_service(), seen=seen)
    full = [worlds.card(index, memory_used_mib=45000, holders=[500]) for index in range(2)]
    found = planner.plan(worlds.intent(worlds.gpu_service()), {**kept, "cards": {**kept["cards"], "nvidia": full}})
    assert found["services"][0]["memory"]["verdict"] == "fits"
    assert [item for item in found["findings"] if "MEMORY" in item["id"]] == []


def test_a_service_that_this_run_leaves_alone_takes_what_it_holds_and_no_more():
    one = {"replicas": 1, "tensor_parallel_size": 1}
    first = worlds.gpu_service(name="first", cards=["0"], topology=one)
    second = worlds.gpu_service(name="second", cards=["0"], topology=one, listen={"base_port": 9000})
    seen = worlds.nvidia(models={worlds.MODEL: listing(config={**QWEN3_14B, "architectures": ["Qwen3ForCausalLM"]})})
    both = planner.plan(worlds.intent(first, second), seen)
    assert [service["memory"]["rows"][0]["lacks"] for service in both["services"]] == ["free", "free"]
    only = planner.plan(worlds.intent(first, second, only={"first": []}), seen)
    assert only["services"][0]["memory"]["rows"][0]["beside"] == 0


@given(
    st.floats(0.1, 2000),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 200),
    st.integers(0, 200),
    st.integers(1, 200_000),
    st.booleans(),
)
def test_what_is_sure_holds_and_more_memory_never_makes_it_worse(gib, tp, total, others, tokens, exact):
    model = listing(tensors=[worlds.tensors(gib)] if exact else None, files={"model.safetensors": int(gib * GIB)})
    found = planned(model, tp, total * GIB, min(others, total) * GIB, max_model_len=tokens)
    larger = planned(
        model, tp, total * 2 * GIB, min(others, total) * GIB, max_model_len=tokens, max_num_seqs=256, max_num_batched_tokens=2048
    )
    smaller = planned(
        model, tp, total * GIB, min(others, total) * GIB, max_model_len=tokens, max_num_seqs=256, max_num_batched_tokens=2048
    )
    order = plan.ORDER.index
    assert order(larger["verdict"]) <= order(smaller["verdict"])
    for row in found["rows"]:
        if row["surely"] and row["lacks"] != "free":
            assert exact
            need = row["weights"] + (found["kv"]["request_bytes"] if row["lacks"] == "request" else 0)
            assert need >= total * GIB * found["share"]
        if row["verdict"] == budget.FITS:
            assert row["fit"] >= 1
