"""Is a model what the pinned vLLM can load? All findings at once, before anything is started. Pure, over what the survey read.

files.py  index, shards, tokenizer; config.py  config.json against the release; adapters.py  adapters, and folders of a training
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan.checkpoint import adapters, config, files
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

#: A release that says nothing (`dev`) is taken for one after all that are known.
NEWEST = "99"


def findings(
    wanted: Mapping[str, Any], listing: Mapping[str, Any], survey: Mapping[str, Any], release: str
) -> List[Dict[str, str]]:
    """Everything about the model of a service. `listing`: survey.models.model_listing; `release`: of vLLM."""
    known = release if order(release) else NEWEST
    where = f"{survey['host']['name']}:{wanted['model']['path']}"
    training = adapters.training(listing, where, wanted["name"])
    if training:
        return training  # what a model would lack says nothing of such a folder
    return [
        *files.findings(wanted, listing, where),
        *config.findings(wanted, listing, where, known),
        *adapters.findings(wanted, listing, survey),
    ]
