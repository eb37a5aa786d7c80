"""What is to be staged, merged and made on a host, in which order, and what stands in the way."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import models, planner, text
from ansible_collections.modelyard.core.plugins.plugin_utils import surveying
from unit import worlds

BASE, ADAPTER = "/srv/models/base", "/srv/models/adapter"
MERGE = {"merge": {"base": BASE, "adapter": ADAPTER}}
HUB = {"source": {"from": "huggingface", "repo": "Qwen/Qwen3-14B"}}
GONE = worlds.listing(exists=False)


def plan(model, listed, beside=(), **intent):
    survey = worlds.survey(models={worlds.MODEL: GONE, **listed})
    wanted = worlds.intent(worlds.service(model=model), models=[worlds.model(**entry) for entry in beside], **intent)
    return planner.plan(wanted, survey)


def ids(found):
    return [item["id"] for item in found["findings"] if item["severity"] == "refuse"]


def test_a_model_that_is_to_be_staged_is_no_refusal_until_it_was_tried():
    staged = plan(HUB, {})
    assert ids(staged) == [] and staged["changes"] == ["tiny-qwen3"]
    assert staged["models"] == [
        {
            "id": "tiny-qwen3",
            "path": worlds.MODEL,
            "source": {**worlds.model(**HUB)["source"]},
            "from": "huggingface",
            "make": "stage",
            "reason": "it is not there",
            "there": False,
            "written": False,
            "program": "",
            "arguments": [],
            "python": "/opt/vllm/bin/python",
        }
    ]
    assert "  model   /srv/models/tiny-qwen3 (to be staged from huggingface: it is not there)" in text.plan(staged).splitlines()
    assert ids(plan(HUB, {}, models_made=models.MADE)) == ["PF-MODEL-MISSING"]
    assert plan(HUB, {}, models_made=models.MADE)["models"][0]["make"] == ""


def test_only_what_is_missing_is_a_reason_and_what_a_source_cannot_mend_is_refused_afterwards():
    half = worlds.listing(files={"tokenizer.json": 0})
    assert plan(HUB, {worlds.MODEL: half})["models"][0]["reason"].startswith("it lacks tokenizer.json or")
    assert ids(plan(HUB, {worlds.MODEL: half}, models_made=models.MADE)) == ["PF-MODEL-INCOMPLETE"]
    assert ids(plan({}, {worlds.MODEL: half})) == ["PF-MODEL-INCOMPLETE"]


def test_what_a_source_could_not_mend_is_told_of_models_beside_the_services_too():
    beside = [{"id": "BAAI/bge-m3", "path": BASE, **HUB}]
    cut = worlds.listing(damaged={"model.safetensors": "it is cut off"}, template="")
    assert plan({}, {worlds.MODEL: worlds.listing(), BASE: cut}, beside)["models"][0]["reason"] == "damaged: model.safetensors"
    found = plan({}, {worlds.MODEL: worlds.listing(), BASE: cut}, beside, models_made=models.STAGED)
    assert ids(found) == ["PF-MODEL-DAMAGED"] == [item["id"] for item in found["models_refused"]]


def test_after_the_staging_there_is_still_something_to_merge():
    found = plan(MERGE, {BASE: worlds.listing(), ADAPTER: worlds.adapter()}, models_made=models.STAGED)
    assert [entry["make"] for entry in found["models"]] == ["merge"]
    assert [entry["make"] for entry in plan(MERGE, {}, models_made=models.MADE)["models"]] == [""]


def test_a_merge_comes_after_the_staging_of_what_it_is_made_of_and_brings_its_runtime():
    beside = [{"id": "Qwen/Qwen2-1.5B", "path": BASE, **HUB}]
    found = plan(MERGE, {BASE: GONE, ADAPTER: worlds.adapter()}, beside)
    assert ids(found) == []
    assert [(entry["path"], entry["make"]) for entry in found["models"]] == [(BASE, "stage"), (worlds.MODEL, "merge")]
    merge = found["models"][1]
    assert (merge["program"], merge["arguments"]) == ("merge_adapter.py", [BASE, ADAPTER])
    (runtime,) = [entry for entry in found["runtimes"] if entry["name"].startswith("peft-")]
    assert merge["python"] == f"{runtime['path']}/bin/python"


def test_a_merged_model_that_is_there_wants_no_runtime_for_it():
    found = plan(MERGE, {worlds.MODEL: worlds.listing(), BASE: GONE, ADAPTER: GONE})
    assert ids(found) == [] and found["models"][0]["make"] == ""
    assert not [entry for entry in found["runtimes"] if entry["name"].startswith("peft-")]


SHALLOW = {"config": {"num_hidden_layers": 12, "architectures": ["Qwen3ForCausalLM"]}}


@pytest.mark.parametrize(
    ("base", "adapter", "id", "words"),
    [
        (GONE, worlds.adapter(), "PF-MODEL-MISSING", "the base that tiny-qwen3 is to be merged from is not there"),
        (worlds.listing(), GONE, "PF-MODEL-MISSING", "the adapter that tiny-qwen3 is to be merged from is not there"),
        (worlds.listing(files={"config.json": 0}), worlds.adapter(), "PF-MODEL-INCOMPLETE", "lacks config.json"),
        (worlds.listing(**SHALLOW), worlds.adapter(), "PF-MODEL-ADAPTER", "it trains layer 27, the model has 12 layers"),
        (
            worlds.listing(),
            worlds.adapter(adapter=None, files={"checkpoint-20/a": 1, "checkpoint-100/a": 1}),
            "PF-MODEL-ADAPTER",
            "there is no adapter_config.json; it holds checkpoint-20, checkpoint-100: name the one that you mean",
        ),
        (
            worlds.listing(),
            worlds.adapter(adapter={"config": {"target_modules": ["q_proj", "v_proj", "o_proj"]}}),
            "PF-MODEL-ADAPTER",
            "target_modules names o_proj, for which it has no tensors",
        ),
        (worlds.listing(), worlds.adapter(adapter={"config": {"peft_type": "IA3"}}), "PF-MODEL-ADAPTER", "no LoRA but IA3"),
    ],
)
def test_what_would_go_wrong_with_a_merge_is_known_before_hours_of_work(base, adapter, id, words):
    found = plan(MERGE, {BASE: base, ADAPTER: adapter})
    (one,) = [item for item in found["findings"] if item["severity"] == "refuse"]
    assert one["id"] == id and words in one["what"]
    assert found["models_refused"] == [one]


def test_folders_of_merges_and_of_models_beside_the_services_are_looked_at():
    intent = worlds.intent(worlds.service(model=MERGE), models=[worlds.model(path="/srv/models/bge", **HUB)])
    request = surveying.request(intent)
    assert request["models"] == ["/srv/models/bge", worlds.MODEL, BASE, ADAPTER]
    assert models.merge_runtime() in request["locks"]
    assert models.merge_runtime() not in surveying.request(worlds.intent())["locks"]


def test_an_adapter_that_is_served_unmerged_and_still_to_be_staged_is_no_refusal():
    lora = worlds.service(engine={"enable_lora": True, "lora_modules": [f"support={ADAPTER}"]})
    beside = [worlds.model(id="org/support", path=ADAPTER, **HUB)]
    survey = worlds.survey(models={worlds.MODEL: worlds.listing(), ADAPTER: GONE})
    found = planner.plan(worlds.intent(lora, models=beside), survey)
    assert ids(found) == [] and found["models"][0]["make"] == "stage"
    assert ids(planner.plan(worlds.intent(lora, models=beside, models_made=models.MADE), survey)) == ["PF-MODEL-ADAPTER"]
    assert ids(planner.plan(worlds.intent(lora), survey)) == ["PF-MODEL-ADAPTER"]


def test_a_service_may_name_a_folder_that_is_staged_beside_the_services():
    beside = [{"id": "Qwen/Qwen3-14B", "path": worlds.MODEL, **HUB}]
    found = plan({}, {}, beside)
    assert ids(found) == [] and [entry["make"] for entry in found["models"]] == ["stage"]
    assert "  model   /srv/models/tiny-qwen3 (to be staged from huggingface: it is not there)" in text.plan(found).splitlines()
    assert ids(plan({}, {}, beside, models_made=models.MADE)) == ["PF-MODEL-MISSING"]
