"""Which files of a source a model needs, and when a model is to be staged."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import model_files
from unit import worlds


def entries(*names):
    return [{"name": name, "size": 10, "sha256": "", "git": "", "url": ""} for name in names]


def names(found):
    return [entry["name"] for entry in found]


# What the hubs list of real repositories, in short.
@pytest.mark.parametrize(
    ("listed", "needed"),
    [
        (
            "config.json generation_config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json merges.txt vocab.json tokenizer.json tokenizer_config.json .gitattributes .DS_Store",
            "config.json generation_config.json merges.txt model.safetensors.index.json tokenizer.json tokenizer_config.json "
            "vocab.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors",
        ),
        (  # Llama: Meta's own form beside
            "config.json model.safetensors original/consolidated.00.pth original/tokenizer.model tokenizer.json "
            "consolidated.00.pth",
            "config.json tokenizer.json model.safetensors",
        ),
        (  # Mistral: a second copy, and its own tokenizer
            "config.json consolidated.safetensors model.safetensors params.json tekken.json",
            "config.json params.json tekken.json model.safetensors",
        ),
        ("params.json consolidated.safetensors tekken.json", "params.json tekken.json consolidated.safetensors"),
        (  # BGE-M3
            "pytorch_model.bin sparse_linear.pt colbert_linear.pt 1_Pooling/config.json modules.json sentencepiece.bpe.model "
            "onnx/model.onnx onnx/model.onnx_data onnx/config.json imgs/long.jpg long.jpg",
            "1_Pooling/config.json colbert_linear.pt modules.json sentencepiece.bpe.model sparse_linear.pt pytorch_model.bin",
        ),
        (  # MiniCPM-V brings code
            "configuration_minicpm.py modeling_minicpmv.py model.safetensors assets/a.mp4",
            "configuration_minicpm.py modeling_minicpmv.py model.safetensors",
        ),
        ("pytorch_model.bin model.safetensors tf_model.h5 flax_model.msgpack", "model.safetensors"),
        (  # LLaMA-Factory's output
            "adapter_config.json adapter_model.safetensors training_args.bin trainer_state.json all_results.json "
            "checkpoint-100/adapter_model.safetensors checkpoint-100/optimizer.pt checkpoint-100/rng_state.pth runs/a/events.out",
            "adapter_config.json adapter_model.safetensors",
        ),
        ("model-Q4_K_M.gguf model-Q8_0.gguf", "model-Q4_K_M.gguf model-Q8_0.gguf"),
    ],
)
def test_what_a_model_needs(listed, needed):
    assert names(model_files.choose(entries(*listed.split()), [], []).needed) == needed.split()


def test_patterns_of_the_inventory_win():
    listed = entries("a-Q4.gguf", "a-Q8.gguf", "long.jpg", "LICENSE", "README.md")
    chosen = model_files.choose(listed, ["*.jpg"], ["*Q8*"])
    assert names(chosen.needed) == ["a-Q4.gguf"]
    assert names(chosen.extra) == ["LICENSE", "README.md", "long.jpg"]


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "", "a//b", "./a", "a\\..\\b", "a\n", ".git/config", None, 3])
def test_names_that_would_lead_elsewhere(name):
    assert not model_files.safe(name)


def test_what_would_be_lacking_is_known_by_name_before_the_gigabytes_come():
    listed = entries("config.json", "model.safetensors", "tokenizer_config.json")
    assert model_files.lacking(listed, {}) == ["tokenizer.json or tokenizer.model or vocab.json+merges.txt or tekken.json"]
    assert model_files.lacking(listed, {"tokenizer.json": 5}) == []
    assert model_files.lacking(entries("adapter_config.json"), {}) == []


def wanted(**source):
    return worlds.service(model={"source": {"from": "huggingface", **source}})["model"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"exists": False}, "it is not there"),
        ({"staging": {"run": "x"}}, "an earlier staging did not come to its end"),
        ({"files": {"tokenizer_config.json": 0}}, "it lacks tokenizer_config.json"),
        ({"damaged": {"model.safetensors": "cut"}}, "damaged: model.safetensors"),
    ],
)
def test_when_a_model_is_to_be_staged(changes, words):
    assert model_files.reason(wanted(), worlds.listing(**changes)) == words
    assert model_files.reason(worlds.service()["model"], worlds.listing(**changes)) == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, ""),
        ({"revision": "abc"}, ""),
        ({"revision": "v1"}, ""),
        ({"revision": "v2"}, "revision v1"),
        ({"repo": "org/other"}, "tiny-qwen3"),
    ],
)
def test_a_folder_that_holds_another_model_or_revision(asked, words):
    staged = {"from": "modelscope", "repo": "tiny-qwen3", "revision": "abc", "asked": "v1"}
    assert model_files.of_another(wanted(**asked), worlds.listing(staged=staged)) == words
    assert model_files.of_another(wanted(**asked), worlds.listing()) == ""
