"""What would stop or disturb a deploy on this host: one file for each kind of thing, each a pure function of the survey."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import (
    admin,
    capacity,
    cards,
    drivers,
    host,
    processes,
    taken,
    users,
)


def findings(intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Every finding about the host. `services`: as planned, with their cards and actions."""
    return [
        *host.findings(intent, survey),
        *drivers.findings(survey, services),
        *cards.findings(intent, survey, services),
        *users.findings(survey, services),
        *processes.findings(survey, services),
        *admin.findings(survey, services),
        *taken.findings(intent, survey, services),
        *capacity.findings(survey, services),
    ]
