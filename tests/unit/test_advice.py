"""What the plan says about a topology, and what it refuses."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import advice, planner
from unit import worlds

#: Qwen/Qwen3-14B, as its config.json is.
QWEN_14B = {
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "num_hidden_layers": 40,
    "head_dim": 128,
    "hidden_size": 5120,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 40960,
}
GIB = 2**30


def listing(config, gib):
    return {**worlds.listing(files={"model.safetensors": int(gib * GIB)}), "config": config}


def told(config, gib, topology, engine=None, cards=None):
    """The line about the topology."""
    wanted = worlds.gpu_service(topology=topology, engine=engine or {"max_model_len": 32768})
    lines = advice.topology(wanted, listing(config, gib), cards or [worlds.card(i) for i in range(8)])
    assert len(lines) == 1
    return lines[0]


TP1, TP2, EIGHT = ({"replicas": r, "tensor_parallel_size": t} for r, t in ((1, 1), (1, 2), (8, 1)))


def test_a_model_that_fits_one_card_is_better_served_by_several_instances():
    said = told(QWEN_14B, 17, EIGHT)
    assert said.startswith(
        "data parallel is right: the model fits on one card: about 23.9 GiB of the 43.5 GiB that 0.92 of a card"
    )
    for why in ("(estimated)", "No request pays for an all-reduce", "throughput adds up over 8 instances", "costs 1/8"):
        assert why in said


def test_tensor_parallel_without_need_is_said_to_be_that():
    said = told(QWEN_14B, 17, TP2)
    assert said.startswith("data parallel would do: the model fits on one card")
    assert "2 x 1 instead of 1 x 2" in said
    assert "a dead card costs 1/2 instead of the whole service" in said


def test_tensor_parallel_is_right_where_the_model_does_not_fit_one_card():
    # 0.60 of a card, as on a server that is shared with others.
    said = told(QWEN_14B, 27.5, TP2, {"max_model_len": 32768, "gpu_memory_utilization": 0.6})
    assert said.startswith(
        "tensor parallel is right: the model does not fit on one card (about 34.4 GiB of the 28.4 GiB that 0.6"
    )
    assert "over 2 it takes about 18.2 GiB of each (estimated)" in said


def test_a_model_that_does_not_fit_is_given_the_size_that_would():
    assert "tensor_parallel_size 2 would fit" in told(QWEN_14B, 60, TP1)
    assert "tensor_parallel_size 4 would fit" in told(QWEN_14B, 100, TP2)
    assert "playbooks/memory.yml says what to change" in told(QWEN_14B, 900, TP1)


@pytest.mark.parametrize("seen", [None, worlds.listing(exists=False), worlds.listing(files={"model.safetensors": 0})])
def test_without_weights_nothing_is_claimed(seen):
    assert advice.topology(worlds.gpu_service(), seen, [worlds.card(0)]) == [
        "whether the model fits on one card is not known: its weights are not there yet"
    ]


def test_cores_and_cards_of_unknown_size_get_no_advice():
    assert advice.topology(worlds.service(), worlds.listing(), []) == []
    assert advice.topology(worlds.gpu_service(), worlds.listing(), [worlds.card(0, memory_total_mib=None)]) == []
    assert planner.plan(worlds.intent(), worlds.survey())["services"][0]["advice"] == []


@pytest.mark.parametrize(
    ("heads", "tp", "wrong"), [(28, 8, True), (28, 4, False), (40, 3, True), (40, 1, False), (None, 3, False)]
)
def test_heads_that_the_ranks_cannot_share_are_refused(heads, tp, wrong):
    config = {"num_attention_heads": heads} if heads else {}
    service = worlds.gpu_service(topology={"replicas": 1, "tensor_parallel_size": tp})
    found = advice.findings(service, listing(config, 1), "modelyard_services[a]")
    assert [item["id"] for item in found] == (["PL-TOPOLOGY"] if wrong else [])
    if heads == 28 and wrong:
        assert found[0]["do"] == "set one of 1, 2, 4, 7"


def test_what_overrides_the_config_decides_about_heads():
    service = worlds.gpu_service(topology={"tensor_parallel_size": 3}, engine={"hf_overrides": {"num_attention_heads": 3}})
    assert advice.findings(service, listing({"num_attention_heads": 40}, 1), "a") == []
