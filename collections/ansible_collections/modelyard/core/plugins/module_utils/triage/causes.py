"""The vocabulary: every cause that an answer can have."""

from __future__ import annotations

from typing import Dict

from ansible_collections.modelyard.core.plugins.module_utils.triage import (
    causes_cards,
    causes_engine,
    causes_requests,
    causes_setup,
)
from ansible_collections.modelyard.core.plugins.module_utils.triage.vocabulary import Cause

_TABLES = (causes_requests, causes_engine, causes_cards, causes_setup)
CAUSES: Dict[str, Cause] = {cause.id: cause for table in _TABLES for cause in table.CAUSES}
