"""The example inventories, read as Ansible reads them: nothing is wrong with them, and they mean what their stories say."""

from __future__ import annotations

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from ansible_collections.modelyard.core.plugins.action import intent
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds
from unit.check_cases import acted

EXAMPLES = sorted(path.name for path in (worlds.ROOT / "inventory").iterdir() if path.is_dir())


def variables_of(example, **extra):
    """Variables of the only host of an example."""
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(worlds.ROOT / "inventory" / example)])
    (host,) = inventory.get_hosts()
    manager = VariableManager(loader=loader, inventory=inventory)
    return {**manager.get_vars(host=host), "inventory_hostname": host.name, **extra}


def read(example):
    variables = variables_of(example, vault_qwen3_14b_32k="sk-of-a-test", vault_minicpm_v_45="sk-of-a-test")
    action = acted(intent, {"roles": str(worlds.ROOT / "roles"), "show": False}, variables)
    action._remote_expand_user = lambda path: path.replace("~", "/home/llm")
    return action.run(None, variables)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_accepted(example):
    result = read(example)
    assert result.get("findings", []) == []
    assert not result.get("failed")


def test_there_is_an_example_for_each_story():
    assert {"demo", "lab_4090", "dcu_k100ai"} <= set(EXAMPLES)


def planned(example, survey):
    wish = read(example)
    paths = {s["runtime_path"]: {"exists": True, "complete": False, "error": "", "vllm": "0.32.0"} for s in wish["services"]}
    models = {s["model"]["path"]: worlds.listing() for s in wish["services"]}
    return planner.plan(wish, {**survey, "runtimes": paths, "models": models})


def test_the_lab_serves_one_model_over_both_cards():
    plan = planned("lab_4090", worlds.nvidia())
    assert plan["findings"] == []
    (service,) = plan["services"]
    (instance,) = service["instances"]
    assert (instance["session"], instance["port"], instance["cards"]) == ("qwen3-14b-32k", 8000, [[0], [1]])
    assert (service["supervisor"], service["secured"], service["listen"]["host"]) == ("systemd", True, "0.0.0.0")
    words = " ".join(instance["argv"])
    for wanted in ("--tensor-parallel-size 2", "--gpu-memory-utilization 0.6", "--max-model-len 32768", "--max-num-seqs 1"):
        assert wanted in words


def test_eight_cards_serve_one_model_each_and_a_dead_card_costs_an_eighth():
    plan = planned("dcu_k100ai", worlds.hygon())
    assert plan["findings"] == []
    (service,) = plan["services"]
    found = [(i["session"], i["port"], i["cards"]) for i in service["instances"]]
    assert found == [(f"minicpm-v-4.5-{index}", 8002 + index, [[index]]) for index in range(8)]
    (entry,) = plan["gateways"]
    assert (entry["gateway"]["port"], [b["port"] for b in entry["gateway"]["backends"]]) == (8000, list(range(8002, 8010)))
    dead = worlds.hygon(*(worlds.dcu(index, health="lost" if index == 5 else "ok") for index in range(8)))
    plan = planned("dcu_k100ai", dead)
    assert [item["id"] for item in plan["findings"] if item["severity"] == "warn"] == ["PL-REPLICAS-FEWER", "PF-CARD-COUNT"]
    assert plan["services"][0]["action"] == "start"
    assert [i["index"] for i in plan["services"][0]["instances"]] == [0, 1, 2, 3, 4, 6, 7]
    assert [b["index"] for b in plan["gateways"][0]["gateway"]["backends"]] == [0, 1, 2, 3, 4, 6, 7]
