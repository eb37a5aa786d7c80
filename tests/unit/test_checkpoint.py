"""Models that are checked before use: made folders, damaged in every way, and configs against releases."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import checkpoint, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checkpoint import adapters, config
from ansible_collections.modelyard.core.plugins.module_utils.survey import models
from ansible_collections.modelyard.core.plugins.plugin_utils import chat_template
from hypothesis import given
from hypothesis import strategies as st
from unit import safetensors_files, worlds

CONFIG = {
    **{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 2, "torch_dtype": "bfloat16"},
    "rope_theta": 1000000.0,
}
TENSORS = {f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", [4, 4]) for layer in range(2)}
LORA = {
    "r": 8,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "Qwen/Qwen2-1.5B",
    "peft_type": "LORA",
}


def write(path, data):
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A whole model in two parts with an index."""
    made = tmp_path / "model"
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    for name, (tensor, shape) in zip(names, TENSORS.items()):
        safetensors_files.write(made / name, {tensor: shape})
    write(made / "model.safetensors.index.json", {"weight_map": dict(zip(TENSORS, names))})
    write(made / "config.json", CONFIG)
    write(made / "tokenizer.json", {})
    write(made / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    return made


def found(folder, release="0.32.0", more=(), **engine):
    """(id, what) of each finding."""
    wanted = worlds.service(model={"path": str(folder)}, engine=engine)
    survey = worlds.survey(models={str(path): models.model_listing(str(path)) for path in (folder, *more)})
    told = checkpoint.findings(wanted, survey["models"][str(folder)], survey, release)
    return [(item["id"], item["what"]) for item in told]


def test_a_whole_model_is_nothing_to_speak_of(folder):
    assert found(folder) == []


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


SECOND = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    ("damage", "id", "words"),
    [
        (lambda f: (f / SECOND).unlink(), "PF-MODEL-INCOMPLETE", f"lacks {SECOND}"),
        (lambda f: (f / "tokenizer.json").unlink(), "PF-MODEL-INCOMPLETE", "lacks tokenizer.json or"),
        (lambda f: cut(f / SECOND), "PF-MODEL-DAMAGED", f"{SECOND}: it is cut off: "),
        (lambda f: write(f / SECOND, "<html>403 Forbidden"), "PF-MODEL-DAMAGED", "it is no .safetensors file"),
        (
            lambda f: write(f / SECOND, "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 4\n"),
            "PF-MODEL-DAMAGED",
            "it is a pointer of Git LFS",
        ),
        (lambda f: write(f / "tokenizer.json", "<!DOCTYPE html>"), "PF-MODEL-DAMAGED", "tokenizer.json: it is a web page"),
        (
            lambda f: write(f / "tokenizer_config.json", '{"chat_template": "x'),
            "PF-MODEL-DAMAGED",
            "tokenizer_config.json: it is no JSON",
        ),
        (
            lambda f: safetensors_files.write(f / SECOND, {"other": ("BF16", [2])}),
            "PF-MODEL-DAMAGED",
            "names 1 tensor(s) that the file beside it does not hold: model.layers.1.mlp.up_proj.weight",
        ),
        (lambda f: write(f / "tokenizer_config.json", {}), "PF-MODEL-TEMPLATE", "has no chat template"),
    ],
)
def test_what_is_damaged_is_named_with_its_file(folder, damage, id, words):
    damage(folder)
    told = found(folder)
    assert any(item[0] == id and words in item[1] for item in told), told


def test_all_of_it_comes_at_once(folder):
    cut(folder / "model-00001-of-00002.safetensors")
    (folder / SECOND).unlink()
    write(folder / "tokenizer_config.json", {})
    write(folder / "config.json", {**CONFIG, "architectures": []})
    assert [item[0] for item in found(folder)] == [
        "PF-MODEL-INCOMPLETE",
        "PF-MODEL-DAMAGED",
        "PF-MODEL-TEMPLATE",
        "PF-MODEL-CONFIG",
    ]


def test_without_an_index_a_missing_part_is_told_by_the_names_of_the_others(folder):
    # Such an engine starts: it loads what is there.
    (folder / "model.safetensors.index.json").unlink()
    assert found(folder) == []
    (folder / SECOND).unlink()
    assert found(folder) == [("PF-MODEL-INCOMPLETE", f"the model of tiny-qwen3 lacks {SECOND}")]


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("chat_template.jinja", "{{ messages }}"),
        ("chat_template.json", {"chat_template": "{{ messages }}"}),
        (
            "tokenizer_config.json",
            {"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]},
        ),
    ],
)
def test_a_template_may_lie_in_several_places(folder, file, data):
    write(folder / "tokenizer_config.json", {})
    write(folder / file, data)
    assert found(folder) == []
    assert models.model_listing(str(folder))["template"] in ("{{ messages }}", "d")


def test_a_template_that_jinja_cannot_read_is_told_with_its_line(folder):
    write(folder / "chat_template.jinja", "{%- for m in messages %}\n{{ m.content }")
    survey = worlds.survey(models={str(folder): models.model_listing(str(folder))})
    chat_template.judge(survey)
    wanted = worlds.service(model={"path": str(folder)})
    (item,) = checkpoint.findings(wanted, survey["models"][str(folder)], survey, "0.32.0")
    assert item["id"] == "PF-MODEL-TEMPLATE"
    assert "Jinja cannot read the chat template of the model of tiny-qwen3 (line 2: " in item["what"]


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{{ messages }}",
        "{% for m in messages %}{% if m %}{% continue %}{% endif %}{% generation %}x{% endgeneration %}{% endfor %}",
    ],
)
def test_what_transformers_adds_to_jinja_is_known(template):
    assert chat_template.problem(template) == ""


@pytest.mark.parametrize("engine", [{"runner": "pooling"}, {"chat_template": "/x.jinja"}])
def test_who_needs_no_template_is_not_asked_for_one(folder, engine):
    write(folder / "tokenizer_config.json", {})
    assert found(folder, **engine) == []


@pytest.mark.parametrize(
    ("changes", "release", "engine", "id", "words"),
    [
        ({"architectures": None}, "0.32.0", {}, "PF-MODEL-CONFIG", "does not name an architecture"),
        (
            {"architectures": ["AquilaForCausalLM"]},
            "0.32.0",
            {},
            "PF-MODEL-CONFIG",
            "AquilaForCausalLM is served no more by vLLM 0.32.0",
        ),
        ({"architectures": ["AquilaForCausalLM"]}, "0.16.0", {}, "", ""),
        ({"architectures": ["Qwen3NextForCausalLM"]}, "0.9.2", {}, "PF-MODEL-DOUBT", "; 0.11.0 has it"),
        ({"architectures": ["Qwen3NextForCausalLM"]}, "0.10.2", {}, "", ""),  # between two that were read: not known
        ({"architectures": ["OwnForCausalLM"]}, "0.32.0", {}, "PF-MODEL-DOUBT", "has no OwnForCausalLM of its own"),
        ({"architectures": ["OwnForCausalLM"]}, "0.32.0", {"model_impl": "transformers"}, "", ""),
        ({"architectures": ["OwnForCausalLM"]}, "0.8.5", {}, "", ""),  # before all that were read
        ({"torch_dtype": "float8"}, "0.32.0", {}, "PF-MODEL-CONFIG", "of the type float8"),
        ({"torch_dtype": "float32"}, "0.32.0", {}, "", ""),
        ({"model_type": "gemma2"}, "0.32.0", {"dtype": "float16"}, "PF-MODEL-CONFIG", "do not compute in float16"),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}, "0.11.0", {}, "", ""),
        (
            {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 1},
            "0.32.0",
            {},
            "PF-MODEL-CONFIG",
            "1 of 2 layers",
        ),
        ({"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 1}, "0.32.0", {}, "", ""),
    ],
)
def test_a_config_is_held_against_the_release(folder, changes, release, engine, id, words):
    write(folder / "config.json", {**CONFIG, **changes})
    told = found(folder, release, **engine)
    assert [item[0] for item in told] == ([id] if id else [])
    assert not id or words in told[0][1]


def without(*keys, **more):
    return {**{key: value for key, value in CONFIG.items() if key not in keys}, **more}


def test_a_checkpoint_of_transformers_5_in_an_old_vllm_is_refused_with_the_line_to_add(folder):
    # KeyError: 'rope_theta'
    write(folder / "config.json", without("rope_theta", rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"}))
    assert [item[0] for item in found(folder, "0.11.0")] == ["PF-MODEL-CONFIG"]
    assert found(folder, "0.12.0") == found(folder, "dev") == []
    wanted, listing = worlds.service(), models.model_listing(str(folder))
    (item,) = config.findings(wanted, listing, "box:/m", "0.11.0")
    assert "KeyError: 'rope_theta'" in item["what"]
    assert 'add "rope_theta": 1000000.0 beside it' in item["do"]


def test_positions_that_fall_back_to_a_default_are_a_warning(folder):
    write(folder / "config.json", without("rope_theta"))
    assert [item[0] for item in found(folder)] == ["PF-MODEL-DOUBT"]
    write(folder / "config.json", without("rope_theta", model_type="gpt2"))
    assert found(folder) == []


def test_what_overrides_the_config_decides(folder):
    write(folder / "config.json", {"model_type": "qwen2"})
    assert found(folder, hf_overrides={"architectures": ["Qwen2ForCausalLM"]}) == []


@pytest.mark.parametrize("release", [*tables.releases()])
def test_well_known_architectures_are_doubted_in_no_release(release):
    for name in ("LlamaForCausalLM", "Qwen2ForCausalLM", "MixtralForCausalLM", "Gemma2ForCausalLM", "DeepseekV3ForCausalLM"):
        assert config.served(name, release) is not False


def adapter(tmp_path, said=None, modules=("q_proj", "v_proj"), rank=8, layers=2, more=None):
    """An adapter's folder as peft writes it."""
    made = tmp_path / "adapter"
    tensors = {}
    for layer in range(layers):
        for module in modules:
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = ("F32", [rank, 16])
            tensors[f"{name}.lora_B.weight"] = ("F32", [16, rank])
    safetensors_files.write(made / "adapter_model.safetensors", {**tensors, **(more or {})})
    write(made / "adapter_config.json", {**LORA, **(said or {})})
    return made


def beside(folder, made, **engine):
    usual = {"enable_lora": True, "lora_modules": [f"tuned={made}"]}
    return found(folder, more=[made], **{**usual, **engine})


def test_a_whole_adapter_is_nothing_to_speak_of(folder, tmp_path):
    assert beside(folder, adapter(tmp_path)) == []


HALF = {"base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight": ("F32", [8, 16])}


@pytest.mark.parametrize(
    ("made", "engine", "words"),
    [
        # Names that were added by hand: what was not trained cannot appear.
        (
            {"said": {"target_modules": ["q_proj", "v_proj", "o_proj"]}},
            {},
            "target_modules names o_proj, for which it has no tensors",
        ),
        ({"said": {"target_modules": ["q_proj"]}}, {}, "tensors for v_proj, which target_modules does not name"),
        ({"said": {"target_modules": ["q_proj", "v_proj", "k_proj"]}, "more": HALF}, {}, "of k_proj one half is missing"),
        ({"said": {"r": 16}}, {}, "adapter_config.json says rank 16, its tensors have 8"),
        ({"said": {"r": 64}, "rank": 64}, {}, "its rank is 64, the service allows 16"),
        ({"said": {"modules_to_save": ["embed_tokens"]}}, {}, "saved embed_tokens whole"),
        ({"said": {"use_dora": True}}, {}, "a DoRA adapter"),
        ({"said": {"bias": "all"}}, {}, "trained biases"),
        (
            {"layers": 5},
            {},
            "it trains layer 4, the model has 2 layers: it is an adapter of another base (it names Qwen/Qwen2-1.5B)",
        ),
        ({}, {"enable_lora": False}, "lora_modules without enable_lora"),
    ],
)
def test_an_adapter_is_held_against_its_own_tensors_and_its_base(folder, tmp_path, made, engine, words):
    told = beside(folder, adapter(tmp_path, **made), **engine)
    assert [item[0] for item in told] == ["PF-MODEL-ADAPTER"], told
    assert words in told[0][1]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: cut(f / "adapter_model.safetensors"), "it is cut off"),
        (lambda f: (f / "adapter_model.safetensors").unlink(), "No such file"),
        (lambda f: (f / "adapter_config.json").unlink(), "there is no adapter_config.json"),
        (lambda f: write(f / "adapter_config.json", "{"), "adapter_config.json is no JSON"),
    ],
)
def test_a_damaged_adapter_is_named(folder, tmp_path, damage, words):
    made = adapter(tmp_path)
    damage(made)
    assert words in beside(folder, made)[0][1]


def test_patterns_of_ranks_and_of_modules_are_left_to_vllm(folder, tmp_path):
    assert beside(folder, adapter(tmp_path, {"target_modules": ".*proj", "r": 4, "rank_pattern": {"q_proj": 8}})) == []


def test_the_folder_of_a_training_is_recognised_and_none_of_its_checkpoints_is_chosen(tmp_path):
    made = adapter(tmp_path)
    ((id, what),) = found(made)
    assert (id, what) == ("PF-MODEL-ADAPTER", "the folder of tiny-qwen3 holds an adapter of Qwen/Qwen2-1.5B, and no model")
    output = tmp_path / "output"
    for step in (1000, 200):
        safetensors_files.write(output / f"checkpoint-{step}/model.safetensors", TENSORS)
    ((id, what),) = found(output)
    assert (id, what) == (
        "PF-MODEL-ADAPTER",
        "the folder of tiny-qwen3 is one of a training, with checkpoint-200, checkpoint-1000, and holds no model itself",
    )


def test_a_merged_model_among_checkpoints_is_a_model(folder):
    (folder / "checkpoint-100").mkdir()
    write(folder / "checkpoint-100/trainer_state.json", {})
    assert found(folder) == []


@pytest.mark.parametrize(
    ("said", "paths"),
    [
        (["a=/x", '{"name": "b", "path": "/y"}', {"name": "c", "path": "/z"}], {"a": "/x", "b": "/y", "c": "/z"}),
        ("a=/x", {"a": "/x"}),
        (["a=org/name", "{", 3, None, "nothing"], {}),
        (None, {}),
    ],
)
def test_adapters_are_read_as_vllm_takes_them(said, paths):
    assert adapters.paths({"lora_modules": said}) == paths


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
)
KEYS = sorted({*CONFIG, *LORA, "rope_parameters", "use_sliding_window", "sliding_window", "max_window_layers", "text_config"})


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_strange_configs_are_no_crash(said, lora):
    seen = {"exists": True, "adapter": {"config": lora, "modules": {}, "other": [], "problem": ""}}
    base = worlds.listing()
    base["config"] = said
    survey = worlds.survey(models={"/a": seen})
    wanted = worlds.service(engine={"enable_lora": True, "lora_modules": ["a=/a"]})
    for release in ("0.9.2", "0.32.0"):
        assert all(item["what"] for item in checkpoint.findings(wanted, base, survey, release))
