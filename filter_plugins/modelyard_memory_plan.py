"""Filter: a model -> its memory plan on cards of a size (thin wrapper)."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import plan, words
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_memory_plan
short_description: Does a model fit on cards of a size, with how many requests, and what to change
description:
  - The memory plan that C(playbooks/memory.yml) makes of a host, for a model and cards that need not be there.
  - All sizes are bytes. What is estimated stands under C(estimated).
options:
  _input: {description: The content of config.json., type: dict, required: true}
  card_mib: {description: Memory of a card as the vendor's tool shows it., type: int, required: true}
  weights_gib:
    description: The weights of the model on disk, all files together. Without it their size is not known.
    type: float
    default: 0
  tensor_parallel_size: {description: Over so many cards., type: int, default: 1}
  engine: {description: Options of vLLM as under C(engine) of a service., type: dict, default: {}}
  others_mib: {description: What others hold on each card., type: int, default: 0}
  backend: {description: Kind of the cards., type: str, default: nvidia}
  release: {description: Release of vLLM. Empty means the newest., type: str, default: ""}
  form: {description: "C(data), or the C(text) that people read.", type: str, choices: [data, text], default: data}
"""
EXAMPLES = r"""
- name: Show whether Qwen3-14B fits on a card of 48 GB
  ansible.builtin.debug:
    msg: "{{ config | modelyard_memory_plan(card_mib=49140, weights_gib=27.5, engine={'max_model_len': 32768}, form='text') }}"
  vars:
    config: "{{ lookup('ansible.builtin.file', 'config.json') | from_json }}"
"""
RETURN = r"""
_value:
  description: "C(verdict) (fits, fits with less, does not fit, unknown), C(rows), C(kv), C(weights), C(change) and others."
  type: dict
"""
MIB = 2**20


def modelyard_memory_plan(
    config: dict[str, Any],
    card_mib: int,
    weights_gib: float = 0.0,
    tensor_parallel_size: int = 1,
    engine: dict[str, Any] | None = None,
    others_mib: int = 0,
    backend: str = "nvidia",
    release: str = "",
    form: str = "data",
) -> Any:
    """Plain data in, plain data or text out.

    :raises AnsibleFilterError: the input is no config.json.
    """
    data = plain(config)
    if not isinstance(data, dict):
        raise AnsibleFilterError("modelyard_memory_plan reads the content of a config.json: a table, not text.")
    files = {"model.safetensors": int(float(weights_gib) * 2**30)}
    listing = {"exists": True, "files": files, "shards": [], "config": data, "tensors": None}
    tp = int(tensor_parallel_size)
    wanted = plan.Wanted(plain(engine or {}), tp, backend, release)
    places = [plan.Place(0, "start", card, int(card_mib) * MIB, int(others_mib) * MIB) for card in range(tp)]
    found = plan.plan(listing, wanted, places)
    return words.report([{"name": "model", "memory": found, "advice": []}], "these cards") if form == "text" else found


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_memory_plan": modelyard_memory_plan}
