"""An adapter on the real engine: staged, merged into its base, and served unmerged; both say the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import models
from e2e_site import get, make_site, runtime_python, torn_down
from harness import ROOT, RUNTIMES, Site

pytestmark = [pytest.mark.e2e, pytest.mark.further]
NAME = "tiny-lora"
PROMPT = "Count to ten:"
#: Log probabilities of all tokens after PROMPT, by the merged model.
AFTER = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokens = AutoTokenizer.from_pretrained(sys.argv[1])(sys.argv[2], return_tensors="pt").input_ids
with torch.inference_mode():
    logits = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")(input_ids=tokens).logits[0, -1]
print(json.dumps(logits.float().log_softmax(-1).max().item()))
"""


def ran(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = make_site(tmp_path_factory.mktemp("lora"), NAME, replicas=1, tp=1)
    base, training, tuned = (made.folder / name for name in ("base", "training", "tuned"))
    python = runtime_python(made.folder)
    ran(python, ROOT / "roles/model/files/tiny_qwen3.py", base)
    ran(python, Path(__file__).with_name("adapter.py"), base, training)
    source = {"from": "folder", "at": str(training), "subfolder": "checkpoint-200", "by": "control"}
    made.variables["modelyard_models"] = [
        {"id": "tuned", "path": str(tuned), "source": source},
        {"id": "merged", "path": f"{made.folder}/merged", "merge": {"base": str(base), "adapter": str(tuned)}},
    ]
    made.services[0]["model"] = {"id": "tiny", "path": str(base)}
    made.services[0]["engine"].update(enable_lora=True, max_loras=1, max_lora_rank=8, lora_modules=[f"tuned={tuned}"])
    yield from torn_down(made)


def likeliest(site: Site, model: str) -> float:
    """The log probability of the first token that the engine says after PROMPT."""
    body = {"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 1}
    status, reply = get(int(site.services[0]["listen"]["base_port"]), "/v1/completions", body=body)
    assert status == 200, reply
    return float(reply["choices"][0]["logprobs"]["token_logprobs"][0])


def test_one_deploy_stages_an_adapter_merges_it_and_serves_it_unmerged(site: Site) -> None:
    run = site.play("deploy")
    assert run.rc == 0, run.output[-5000:]
    assert f"pass  {NAME}/0 adapters: tuned" in run.output
    files = {path.name for path in (site.folder / "tuned").iterdir() if path.is_file()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}
    told = json.loads((site.folder / "merged/.cache/modelyard/manifest.json").read_text())
    figures = told["source"]["compared"]
    assert figures["error"] < 0.05 and figures["effect"] > 0.3 and figures["agree"] > 0.9
    python = sorted(RUNTIMES.glob(f"{models.merge_runtime()}-*/modelyard.json"))[-1].parent / "bin/python"
    merged = float(json.loads(ran(python, "-c", AFTER, site.folder / "merged", PROMPT).splitlines()[-1]))
    tuned, plain = likeliest(site, "tuned"), likeliest(site, "tiny")
    assert abs(tuned - merged) < 0.1 < abs(plain - merged), (plain, tuned, merged)


def test_a_merge_in_which_the_adapter_is_lost_is_refused_and_gets_no_name_of_a_model(site: Site) -> None:
    weak = {"base": f"{site.folder}/base", "adapter": f"{site.folder}/training/checkpoint-100"}
    site.variables["modelyard_models"] = [{"id": "weak", "path": f"{site.folder}/weak", "merge": weak}]
    run = site.play("models")
    assert run.rc != 0
    assert "the merged model does not answer like base and adapter together" in run.output
    assert not (site.folder / "weak").exists() and (site.folder / "weak.making/config.json").exists()
