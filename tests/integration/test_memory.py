"""The memory plan as an admin asks for it: on this machine, and the filters in a playbook of one's own."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

from harness import BIN, ROOT, Site
from unit import safetensors_files

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    **{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    **{"hidden_size": 128, "intermediate_size": 256, "vocab_size": 512, "dtype": "bfloat16", "max_position_embeddings": 4096},
}


def model(folder: Path) -> Path:
    """A model folder whose weights are zeros."""
    safetensors_files.write(folder / "model.safetensors", {"model.embed_tokens.weight": ("BF16", [512, 128])})
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    return folder


def test_the_plan_is_a_table_and_json_and_changes_nothing(tmp_path: Path) -> None:
    path, target = model(tmp_path / "model"), tmp_path / "memory.json"
    service = {
        "name": "tiny",
        "backend": "cpu",
        "model": {"id": "tiny", "path": str(path)},
        "topology": {"replicas": 1, "tensor_parallel_size": 1},
        "engine": {"max_model_len": 4096, "kv_cache_memory_bytes": 1048576},
    }
    site = Site(tmp_path, [service])
    run = site.play("memory", memory_json=str(target))
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    assert "Memory plan for host-a" in run.output
    assert "tiny: fits with less: 128 KiB weights, 1.0 MiB KV cache, not one request of 4096 tokens, at most 1920" in run.output
    assert "-> engine.max_model_len: 1920 is the longest that fits" in run.output
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    found = json.loads(target.read_text(encoding="utf-8"))["hosts"]["host-a"]["tiny"]
    # 2 layers, 2 KV heads, 32 numbers for key and value each, 2 bytes.
    assert (found["kv"]["token_bytes"], found["rows"][0]["blocks"]) == (512, 16)
    assert found["weights"] == {"rank": 131072, "disk": 131072, "source": "headers", "parts": {"split": 0, "whole": 131072}}


def test_the_filters_are_usable_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    words = "config | modelyard_memory_plan(card_mib=24564, weights_gib=1, engine={'max_model_len': 4096}, form='text')"
    play = f"""
- name: Filters
  hosts: localhost
  gather_facts: false
  vars:
    config: "{{{{ lookup('ansible.builtin.file', '{tmp_path}/config.json') | from_json }}}}"
  tasks:
    - name: Show them
      ansible.builtin.debug:
        msg: "{{{{ config | modelyard_kv_bytes_per_token }}}} {{{{ {words} }}}}"
"""
    (tmp_path / "play.yml").write_text(play, encoding="utf-8")
    command = [str(BIN / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "512 Memory plan for these cards" in run.stdout
    assert "model: fits: 1.0 GiB weights" in run.stdout
