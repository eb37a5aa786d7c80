"""What a person has confirmed for one run: judged for all hosts of the run before anything is done on one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.plugin_utils import report

Plan = Mapping[str, Any]


def judged(
    action: ActionBase,
    variables: Mapping[str, Any],
    kind: tuple[str, str],
    confirmed: str,
    known_of: Callable[[Plan], Any],
    judge: Callable[[str, dict[str, Any]], list[dict[str, str]]],
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """(what is known of each host, findings). One mistake refuses every host: who mistyped one of two names may have meant
    another host with the other, too.

    :param kind: id of the findings, and the variable, which must be given for this run alone.
    :param confirmed: what a person wrote.
    :param known_of: makes of a host's plan what a confirmation may name; None stands for a host without one.
    """
    id, variable = kind
    plans = {host: report.plan(known) for host, known in report.registered(variables).items()}
    hosts = {host: None if plan is None else known_of(plan) for host, plan in plans.items()}
    found = judge(confirmed, hosts)
    if confirmed and variable not in load_extra_vars(action._loader):
        what = f"{variable} stands in the inventory, where it would be good for every run"
        found.append(finding(id, variable, what, "remove it there, and give it with -e for one run"))
    return hosts, found
