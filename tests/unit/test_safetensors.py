"""Headers of .safetensors files: whole, damaged, and whatever bytes a file can hold."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import models, safetensors
from hypothesis import given
from hypothesis import strategies as st
from unit import safetensors_files

TWO = {"model.layers.0.mlp.up_proj.weight": ("BF16", [4, 8]), "lm_head.weight": ("F32", [3, 2])}


def test_a_whole_file_tells_its_tensors(tmp_path):
    found = safetensors.read(safetensors_files.write(tmp_path / "a.safetensors", TWO))
    assert found.problem == ""
    assert found.tensors["lm_head.weight"] == safetensors.Tensor("F32", (3, 2), 24)
    assert found.metadata == {"format": "pt"}
    assert [tensor.bytes for tensor in found.tensors.values()] == [64, 24]


def damaged(tmp_path, change):
    path = safetensors_files.write(tmp_path / "a.safetensors", TWO)
    path.write_bytes(change(path.read_bytes()))
    return safetensors.read(path)


@pytest.mark.parametrize(
    ("change", "words", "tensors"),
    [
        (lambda data: b"", "it has 0 bytes, too few for a header", 0),
        (lambda data: data[:5], "it has 5 bytes, too few for a header", 0),
        (lambda data: data[:60], "it ends inside its header: 60 bytes are there", 0),
        (lambda data: data[:-1], "it is cut off: ", 2),
        (lambda data: data + b"x", "it has more than its header says: ", 2),
        (lambda data: b"<!DOCTYPE html>" + data, "it is no .safetensors file", 0),
        (lambda data: data[:8] + b"x" + data[9:], "its header is no JSON", 0),
        (lambda data: (2).to_bytes(8, "little") + b"[]", "its header is no table of tensors", 0),
        (lambda data: data.replace(b'"F32"', b'"I8" '), "nothing that can be used of lm_head.weight", 1),
        (lambda data: data.replace(b"[3, 2]", b"[3,-2]"), "nothing that can be used of lm_head.weight", 1),
    ],
)
def test_what_is_damaged_is_said(tmp_path, change, words, tensors):
    found = damaged(tmp_path, change)
    assert words in found.problem
    assert len(found.tensors) == tensors


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 2**63))
def test_whatever_a_file_holds_is_no_crash(data, length, size):
    found = safetensors.parsed(data, length, size)
    assert found.problem or size == 8 + length + sum(tensor.bytes for tensor in found.tensors.values()) or found.tensors


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), inner),
)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=4))
def test_whatever_a_header_says_is_no_crash(said):
    text = json.dumps(said).encode()
    found = safetensors.parsed(text, len(text), 8 + len(text))
    assert found.problem or all(tensor.bytes >= 0 for tensor in found.tensors.values())


def test_tensors_of_one_kind_are_summed_up_and_those_beyond_the_last_layer_kept_apart():
    names = [
        *(f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight" for layer in range(3) for expert in range(2)),
        "a.weight",
    ]
    found = safetensors.summed([(name, safetensors.Tensor("BF16", (4, 2), 16)) for name in names], 2)
    assert [(entry["name"], entry["count"], entry["bytes"], entry["beyond"]) for entry in found] == [
        ("a.weight", 1, 16, False),
        ("model.layers.*.mlp.experts.*.up_proj.weight", 4, 64, False),
        ("model.layers.*.mlp.experts.*.up_proj.weight", 2, 32, True),
    ]


def test_a_folder_tells_what_its_index_names_and_no_file_holds(tmp_path):
    safetensors_files.write(tmp_path / "one.safetensors", {"a": ("BF16", [2, 2]), "b": ("BF16", [2])})
    path = safetensors_files.write(tmp_path / "two.safetensors", {"c": ("BF16", [8])})
    path.write_bytes(path.read_bytes()[:-3])
    safetensors_files.write(tmp_path / "stray.safetensors", {"z": ("F32", [100])})
    places = {"a": "one.safetensors", "gone": "one.safetensors", "c": "two.safetensors", "d": "three.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    found = models.model_listing(str(tmp_path))
    assert found["absent"] == {"count": 1, "first": ["gone"]}
    assert list(found["damaged"]) == ["two.safetensors"]
    assert [entry["name"] for entry in found["tensors"]] == ["a", "b", "c"]


def test_a_second_copy_in_another_form_is_not_counted_twice(tmp_path):
    for name in ("model.safetensors", "consolidated.safetensors", "adapter_model.safetensors", "sub/model.safetensors"):
        safetensors_files.write(tmp_path / name, {"a": ("BF16", [2])})
    assert models.model_listing(str(tmp_path))["tensors"][0]["count"] == 1


@pytest.mark.parametrize("text", ["[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "{", "null"])
def test_an_index_that_is_none_is_no_crash(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    found = models.model_listing(str(tmp_path))
    assert (found["shards"], found["tensors"]) == ([], None)
