"""Filter: config.json of a model -> bytes of its KV cache for a token (thin wrapper around the memory plan)."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, kv_cache
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_kv_bytes_per_token
short_description: Bytes of the KV cache that a token takes on one rank
description:
  - Over all layers that keep the token. Layers with a window keep it only for a while, and layers with a state keep none.
  - Null where config.json does not tell it.
options:
  _input: {description: The content of config.json., type: dict, required: true}
  engine: {description: "Options of vLLM that matter: C(dtype), C(kv_cache_dtype).", type: dict, default: {}}
  tensor_parallel_size: {description: Over so many ranks., type: int, default: 1}
"""
EXAMPLES = r"""
- name: Show what a token of Qwen3-14B takes on each of two cards
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'config.json') | from_json | modelyard_kv_bytes_per_token(tensor_parallel_size=2) }}"
"""
RETURN = "_value: {description: Bytes., type: int}"


def modelyard_kv_bytes_per_token(
    config: dict[str, Any], engine: dict[str, Any] | None = None, tensor_parallel_size: int = 1
) -> int | None:
    """Plain data in, a number out.

    :raises AnsibleFilterError: the input is no config.json.
    """
    data, options = plain(config), plain(engine or {})
    if not isinstance(data, dict):
        raise AnsibleFilterError("modelyard_kv_bytes_per_token reads the content of a config.json: a table, not text.")
    layout = attention.layout(data, options, int(tensor_parallel_size))
    return kv_cache.token_bytes(kv_cache.cache(layout, options, "")) if layout.kinds else None


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_kv_bytes_per_token": modelyard_kv_bytes_per_token}
