"""What would stop or disturb a deploy on this host: one file for each kind of thing, each a pure function of the survey."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import (
    access,
    admin,
    capacity,
    cards,
    compiler,
    drivers,
    host,
    processes,
    supervisors,
    taken,
    users,
)


def findings(
    intent: Mapping[str, Any],
    survey: Mapping[str, Any],
    services: Sequence[Mapping[str, Any]],
    gateways: Sequence[Mapping[str, Any]] = (),
) -> List[Dict[str, str]]:
    """Every finding about the host. `services`: as planned, with their cards and actions; `gateways` use no card.

    What this run is not about (`concerned`) only counts where somebody else's things must be told from ours.
    """
    concerned = [service for service in services if service["concerned"]]
    kept = [*concerned, *(gateway for gateway in gateways if gateway["concerned"])]
    return [
        *host.findings(intent, survey),
        *drivers.findings(survey, concerned),
        *cards.findings(intent, survey, concerned),
        *users.findings(survey, services),
        *processes.findings(survey, kept),
        *admin.findings(survey, kept),
        *taken.findings(intent, survey, [*services, *gateways]),
        *access.findings(survey, services, gateways),
        *supervisors.findings(intent, survey, kept),
        *capacity.findings(survey, concerned),
        *compiler.findings(survey, concerned),
    ]
