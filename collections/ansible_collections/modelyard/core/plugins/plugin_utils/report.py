"""A report on all hosts of a play: what each has registered, and a JSON file on the control node."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

#: What a registered plan has besides the plan itself.
NOT_OF_THE_PLAN = ("survey_json", "ansible_facts", "changed", "failed")


def registered(variables: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The variables of every host of the play by name, in order, whether it still takes part or not.

    Raw: what was registered holds no templates, and looking for some in a hundred hosts takes a while.
    """
    of_host = getattr(variables["hostvars"], "raw_get", variables["hostvars"].__getitem__)
    return {str(name): of_host(str(name)) for name in variables["ansible_play_hosts_all"]}


def plan(host: Mapping[str, Any]) -> dict[str, Any] | None:
    """The plan that a host has registered; None where the task failed or was not reached."""
    seen = plain(dict(host["plan_result"])) if "plan_result" in host else {}
    return {k: v for k, v in seen.items() if k not in NOT_OF_THE_PLAN} if "services" in seen else None


def plan_or_findings(name: str, host: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[dict[str, str]]]:
    """(plan, its findings), or (None, why there is none), for a host that came however far."""
    made = plan(host)
    if made is not None:
        return made, list(made["findings"])
    findings: list[dict[str, str]] = []
    said = ""
    for task in ("modelyard_intent", "plan_result"):
        if task in host:
            answer = plain(dict(host[task]))
            findings += answer.get("findings", [])
            said = str(answer.get("msg") or said)
    if not findings:
        what, do = f"no plan was made: {said or 'no reason was given'}", "see the failed task above; run again with -vvv"
        findings.append(finding("PF-SURVEY-FAILED", name, what, do))
    return None, findings


def write(path: Path, hosts: Mapping[str, Any]) -> None:
    """Whole or not at all; for the owner alone, because surveys name users and commands.

    :raises AnsibleActionFail: it could not be written.
    """
    document = {"schema": 1, "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "hosts": hosts}
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as exc:
        raise AnsibleActionFail(f"the report could not be written to {path}: {exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
