"""What an inventory may write under `cards`, `topology.preset` and as `only`."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.plan import intent_cards, only
from unit import worlds

UUID = "GPU-5a8B2c3d-0000-1111-2222-333344445555"


@pytest.mark.parametrize(
    ("value", "names", "limit"),
    [
        ("all", ["all"], None),
        (["all"], ["all"], None),
        (2, ["all"], 2),
        ("2", ["all"], 2),  # as -e hands it over
        ([2], ["2"], None),
        ([0, 1], ["0", "1"], None),
        (["0", "01"], ["0", "1"], None),
        ("0,1", ["0", "1"], None),
        ("0, 1", ["0", "1"], None),
        ([UUID], [UUID.lower()], None),
        (["0xB2A4C1D2E3F40506"], ["0xb2a4c1d2e3f40506"], None),
        (["0000:0F:00.0", "00000000:1a:00.0", "2b:00.0"], ["0000:0f:00.0", "0000:1a:00.0", "0000:2b:00.0"], None),
        ([1, UUID, "0000:0f:00.0"], ["1", UUID.lower(), "0000:0f:00.0"], None),
        (UUID, [UUID.lower()], None),
    ],
    ids=str,
)
def test_cards_are_all_or_a_number_or_a_list(value, names, limit):
    assert intent_cards.cards(value, False, "a") == (intent_cards.Cards(names, limit), [])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0: a number of cards is at least 1"),
        (-1, "-1: a number of cards is at least 1"),
        ([], "no card is named"),
        ("", "is neither an index"),
        (["0", "0"], "0 stands there twice"),
        (["0", 0], "0 stands there twice"),
        ([UUID, UUID.lower()], "stands there twice"),
        (["all", "1"], "all is neither an index"),
        (["0-1"], "0-1 is neither an index"),
        ([True], "True is neither an index"),
        (True, "True is neither an index"),
        (["1.0"], "1.0 is neither an index"),
        (["\u00b2"], "\u00b2 is neither an index"),
        ({"a": 1}, "is neither an index"),
        (["MIG-1"], "MIG-1 is neither an index"),
        ([60.0], "60.0 is no index of a card. YAML reads it as a number: write ids and PCI addresses in quotes"),
        ([12871208391239128312], "write ids and PCI addresses in quotes"),
        (["x", "y"], "x is neither an index, nor a uuid (GPU-...), a unique id (0x...) or a PCI address (0000:01:00.0); y is"),
    ],
    ids=str,
)
def test_other_cards_are_refused_with_every_reason_at_once(value, words):
    _, (found,) = intent_cards.cards(value, False, "modelyard_services[a]")
    assert (found["id"], found["where"]) == ("IN-VALUE", "modelyard_services[a].cards")
    assert words in found["what"]
    assert found["do"]


def test_yaml_reads_an_address_without_quotes_as_a_number():
    # The reason for the words about quotes: base 60.
    assert yaml.safe_load("- 0000:01:00.0") == [60.0]
    assert intent_cards.cards(yaml.safe_load("- 0000:01:00.0"), False, "a")[1]


def test_a_core_has_no_other_name_than_its_index():
    assert intent_cards.cards(["0", UUID], True, "a")[1][0]["what"] == f"{UUID} is no index of a CPU core"
    assert intent_cards.cards(["0", "31"], True, "a")[1] == []


# -- presets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"preset": "tp2"}, {"preset": "tp2", "replicas": 1, "tensor_parallel_size": 2}),
        ({"preset": "8xtp1", "cards": 7}, {"preset": "8xtp1", "replicas": 8, "tensor_parallel_size": 1, "cards": 7}),
        ({"preset": "8xtp1", "replicas": "8"}, {"preset": "8xtp1", "replicas": 8, "tensor_parallel_size": 1}),
        ({"preset": "tp2", "replicas": None}, {"preset": "tp2", "replicas": 1, "tensor_parallel_size": 2}),
        ({"replicas": 3}, {"replicas": 3}),
        ({"preset": ""}, {"preset": ""}),
        ({"preset": "tp3"}, {"preset": "tp3"}),  # refused by the check of choices
        ({"preset": ["tp2"]}, {"preset": ["tp2"]}),
        (None, None),
        ("tp2", "tp2"),
    ],
    ids=str,
)
def test_a_preset_stands_for_two_numbers(given, wanted):
    assert intent_cards.with_preset(given, "a") == (wanted, [])


def test_numbers_beside_a_preset_that_say_something_else_are_all_refused():
    _, found = intent_cards.with_preset({"preset": "tp2", "replicas": 2, "tensor_parallel_size": "x"}, "modelyard_services[a]")
    assert [(item["id"], item["where"], item["what"]) for item in found] == [
        (
            "IN-VALUE",
            "modelyard_services[a].topology.replicas",
            "the preset tp2 means replicas 1, and 2 is written beside it",
        ),
        (
            "IN-VALUE",
            "modelyard_services[a].topology.tensor_parallel_size",
            "the preset tp2 means tensor_parallel_size 2, and x is written beside it",
        ),
    ]


# -- only -------------------------------------------------------------------------------------------------------------

SERVICES = [
    worlds.service(name="qwen3-14b-32k"),
    worlds.service(name="minicpm-v-4.5", topology={"replicas": 8, "tensor_parallel_size": 1}),
]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", {}),
        (None, {}),
        ("minicpm-v-4.5:3", {"minicpm-v-4.5": [3]}),
        ("minicpm-v-4.5:3,minicpm-v-4.5:1, minicpm-v-4.5:3", {"minicpm-v-4.5": [1, 3]}),
        ("minicpm-v-4.5:3,qwen3-14b-32k", {"minicpm-v-4.5": [3], "qwen3-14b-32k": []}),
        ("minicpm-v-4.5:3,minicpm-v-4.5", {"minicpm-v-4.5": []}),
        ("minicpm-v-4.5,minicpm-v-4.5:3", {"minicpm-v-4.5": []}),
        (["qwen3-14b-32k:0"], {"qwen3-14b-32k": [0]}),
    ],
    ids=str,
)
def test_only_names_instances_and_services(value, wanted):
    assert only.read(value, SERVICES) == (wanted, [])


@pytest.mark.parametrize(
    ("value", "id", "what"),
    [
        ("minicpm:3", "IN-KEY-UNKNOWN", "there is no service minicpm; did you mean minicpm-v-4.5?"),
        ("minicpm-v-4.5:8", "IN-VALUE", "minicpm-v-4.5 has no instance 8; it has 0 to 7"),
        ("qwen3-14b-32k:1", "IN-VALUE", "qwen3-14b-32k has no instance 1; it has 0"),
        ("minicpm-v-4.5:", "IN-VALUE", "'minicpm-v-4.5:' names no instance"),
        ("minicpm-v-4.5:x", "IN-VALUE", "'minicpm-v-4.5:x' names no instance"),
        ("minicpm-v-4.5:-1", "IN-VALUE", "'minicpm-v-4.5:-1' names no instance"),
        (":3", "IN-VALUE", "':3' names no instance"),
        (",", "IN-VALUE", "'' names no instance"),
        (" ", "IN-VALUE", "'' names no instance"),
        (["a", ["b"]], "IN-KEY-UNKNOWN", "there is no service a"),
        (0, "IN-KEY-UNKNOWN", "there is no service 0"),
        ([], "IN-VALUE", "no instance is named"),
    ],
    ids=str,
)
def test_an_only_that_is_not_understood_never_means_everything(value, id, what):
    _, found = only.read(value, SERVICES)
    assert (found[0]["id"], found[0]["what"]) == (id, what)


def test_which_instances_a_run_is_about():
    wanted = {"a": [1], "b": []}
    assert [only.concerns(wanted, name, index) for name, index in (("a", 0), ("a", 1), ("b", 7), ("c", 0))] == [
        *(False, True, True, False)
    ]
    assert (only.concerns(wanted, "a"), only.concerns(wanted, "c"), only.concerns({}, "c", 3)) == (True, False, True)
