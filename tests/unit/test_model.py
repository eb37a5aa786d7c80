from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import model
from unit import worlds

TOKENIZER = "tokenizer.json or tokenizer.model or vocab.json+merges.txt or tekken.json"


def files(**changes):
    """The listing of a model folder with these files instead of the usual ones; a size of None means absent."""
    listing = worlds.listing()
    for name, size in changes.pop("sizes", {}).items():
        listing["files"][name] = size
        if size is None:
            del listing["files"][name]
    return {**listing, **changes}


@pytest.mark.parametrize(
    ("listing", "missing"),
    [
        (files(), []),
        (files(sizes={"config.json": None}), ["config.json"]),
        (files(sizes={"config.json": 0}), ["config.json"]),
        (files(sizes={"tokenizer.json": None}), [TOKENIZER]),
        (files(sizes={"tokenizer.json": None, "vocab.json": 10}), [TOKENIZER]),
        (files(sizes={"tokenizer.json": None, "vocab.json": 10, "merges.txt": 10}), []),
        (files(sizes={"tokenizer.json": None, "tokenizer.model": 10}), []),
        (files(sizes={"tokenizer_config.json": None}), ["tokenizer_config.json"]),
        (files(sizes={"tokenizer.json": None, "tokenizer_config.json": None, "tekken.json": 10}), []),
        (files(sizes={"model.safetensors": None}), ["weights (*.safetensors)"]),
        (files(sizes={"model.safetensors": 0}), ["weights (*.safetensors)"]),
        (files(shards=["a.safetensors", "b.safetensors"]), ["a.safetensors", "b.safetensors"]),
        (
            files(sizes={"a.safetensors": 1, "b.safetensors": 0}, shards=["a.safetensors", "b.safetensors"]),
            ["b.safetensors"],
        ),
        (
            files(sizes={"config.json": None, "tokenizer_config.json": None, "model.safetensors": None}),
            ["config.json", "tokenizer_config.json", "weights (*.safetensors)"],
        ),
    ],
)
def test_each_file_that_an_offline_start_lacks_is_named(listing, missing):
    assert model.missing_files(listing) == missing


def test_stray_files_of_a_mirror_are_no_reason_to_refuse():
    assert model.missing_files(files(sizes={".DS_Store": 6148, "README.md": 0})) == []


def test_weights_are_the_shards_of_the_index_or_every_weight_file():
    sizes = {"model.safetensors": None, "a.safetensors": 3 * 2**20, "b.safetensors": 2**20, "old.bin": 2**30}
    assert model.weights_mib(files(sizes=sizes, shards=["a.safetensors", "b.safetensors"])) == 4.0
    assert model.weights_mib(files(sizes=sizes)) == 1028.0
    assert model.weights_mib(files()) == 100.0


def test_the_fingerprint_changes_with_names_sizes_and_config_and_with_nothing_else():
    listing = worlds.listing()
    same = worlds.listing(path="/elsewhere", files=dict(reversed(listing["files"].items())))
    others = [
        files(sizes={"model.safetensors": 104857601}),
        files(sizes={"extra.safetensors": 1}),
        files(config={"max_position_embeddings": 4096}),
    ]
    first = model.fingerprint(listing)
    assert len(first) == 16
    assert model.fingerprint(same) == first
    assert len({first, *(model.fingerprint(other) for other in others)}) == 4


@pytest.mark.parametrize("listing", [None, {}, worlds.listing(exists=False)])
def test_without_a_model_there_is_no_fingerprint(listing):
    assert model.fingerprint(listing) == ""


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"text_config": {"max_position_embeddings": 40960}}, 40960),
        ({}, None),
        ({"text_config": None}, None),
        ({"max_position_embeddings": "many"}, None),
    ],
)
def test_the_longest_context_is_what_the_config_says(config, longest):
    assert model.longest_context(files(config=config)) == longest


def test_an_adapter_that_is_served_beside_it_is_part_of_its_fingerprint():
    base, one = worlds.listing(), worlds.adapter()
    other = worlds.adapter(files={"adapter_model.safetensors": 9001})
    found = {model.fingerprint(base), model.fingerprint(base, [one]), model.fingerprint(base, [other])}
    assert len(found) == 3 and model.fingerprint(base, []) == model.fingerprint(base)
    assert model.fingerprint(worlds.listing(exists=False), [one]) == ""
