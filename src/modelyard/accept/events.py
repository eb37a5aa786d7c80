"""What the events of a run of acceptance.yml say about each host. Pure: events in, plain data out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from modelyard.accept import answer

INTENT, PLAN, PROBE = "modelyard.core.intent", "modelyard.core.plan", "modelyard.core.service_probe"
UNREACHABLE_ID, LOCK_ID = "PF-UNREACHABLE", "PF-LOCK-HELD"
EVIDENCE = re.compile(r"Evidence: (\S+?)[.]?(?:\s|$)")
#: Refused instances are not asked; those that are to be stopped or left alone are not wanted.
REFUSED = "refused"
NO_WORDS = "no reason was given; ansible's own output is kept beside the record"


class Seen:
    """Collects; `hosts` gives the hosts of the record at the end."""

    def __init__(self) -> None:
        self.plans: dict[str, dict[str, Any]] = {}
        self.probes: dict[str, dict[str, dict[str, Any]]] = {}
        #: (answer, reason, words) of hosts that could not be asked.
        self.problems: dict[str, tuple[str, str, str]] = {}
        self.known: set[str] = set()
        #: What a task complained about although every step has passed.
        self.words: list[str] = []
        self.pid = 0
        self.ended = False

    def event(self, event: Mapping[str, Any]) -> None:
        """One event of ansible-runner."""
        self.pid = self.pid or int(event.get("pid") or 0)
        kind, data = str(event.get("event")), event.get("event_data") or {}
        self.ended = self.ended or kind == "playbook_on_stats"
        host, said = str(data.get("host") or ""), data.get("res")
        if not host:
            return
        self.known.add(host)
        if not isinstance(said, Mapping):
            return
        action = str(data.get("task_action"))
        if kind == "runner_on_unreachable" or said.get("unreachable"):
            self._problem(host, answer.UNREACHABLE, "unreachable", _words(said))
        elif kind in ("runner_item_on_ok", "runner_item_on_failed") and action == PROBE:
            self._probe(host, said)
        elif kind == "runner_on_ok" and action == PLAN:
            self.plans[host] = dict(said)
        elif kind == "runner_on_failed" and action in (INTENT, PLAN):
            ids = [str(item.get("id")) for item in said.get("findings") or []]
            away = UNREACHABLE_ID in ids
            self._problem(host, answer.UNREACHABLE if away else answer.ERROR, ids[0] if ids else action, _words(said))
        elif kind == "runner_on_failed" and action != PROBE and not data.get("ignore_errors"):
            self._problem(host, answer.ERROR, str(data.get("task") or action), _words(said))

    def _problem(self, host: str, kind: str, reason: str, words: str) -> None:
        self.problems.setdefault(host, (kind, reason, words))

    def _probe(self, host: str, said: Mapping[str, Any]) -> None:
        if said.get("skipped"):
            return
        name = str(said.get("service") or said.get("acceptance_item") or "")
        found = EVIDENCE.search(str(said.get("msg") or ""))
        result = said["result"] if isinstance(said.get("result"), Mapping) else said
        steps = [answer.step(one) for one in result.get("steps") or [] if isinstance(one, Mapping)]
        if said.get("refused") and answer.first_failed(steps) is None:
            # That alone is why it failed, and the plan tells it better: _service.
            if not steps:
                return
            said = {**said, "failed": False}
        if not steps:
            steps = [answer.added(answer.PROBE_STEP, 0, _words(said))]
        if said.get("failed") and answer.first_failed(steps) is None:
            self.words.append(f"{host}: {_words(said)}")
        self.probes.setdefault(host, {})[name] = {
            "steps": steps,
            "evidence": str(said.get("evidence") or (found.group(1) if found else "")),
            **{key: said[key] if isinstance(said.get(key), Mapping) else None for key in ("manifest", "load")},
        }

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Every host that the run was about, as in the record."""
        return {host: self._host(host) for host in sorted(self.known)}

    def _host(self, host: str) -> dict[str, Any]:
        plan, probes = self.plans.get(host), self.probes.get(host, {})
        kind, _, words = self.problems.get(host, ("", "", ""))
        if plan is None and not kind:
            kind, words = answer.ERROR, f"the run ended before this host was looked at; {NO_WORDS}"
        services = []
        for planned in (plan or {}).get("services") or []:
            if planned.get("concerned", True) and (planned["name"] in probes or not kind):
                services.append(_service(planned, probes.get(planned["name"]), plan or {}))
        answers = [*(service["answer"] for service in services), *([kind] if kind else [])]
        return {"answer": answer.worst(answers, answer.ACCEPTED), "problem": words, "services": services}

    def reasons(self) -> dict[str, str]:
        """Why hosts could not be asked, in words that stay the same while the cause does."""
        return {host: reason for host, (_, reason, _) in self.problems.items()}


def _words(said: Mapping[str, Any]) -> str:
    """Findings in one line, or what the task said."""
    found = [f"{f.get('id')} {f.get('where')}: {f.get('what')} -> {f.get('do')}" for f in said.get("findings") or []]
    words = "; ".join(found) or str(said.get("msg") or said.get("module_stderr") or NO_WORDS)
    return " ".join(words.split())[:2000]


def _service(planned: Mapping[str, Any], probe: Mapping[str, Any] | None, plan: Mapping[str, Any]) -> dict[str, Any]:
    """One service: the ladder as it was walked, and a failed step for every wanted instance that was not asked."""
    steps = list(probe["steps"]) if probe else []
    asked = {one["instance"] for one in steps}
    for instance in planned.get("instances") or []:
        if instance.get("action") == REFUSED and instance["index"] not in asked:
            steps.append(answer.added(answer.PLAN_STEP, int(instance["index"]), *_refusal(planned, plan)))
    if not steps:
        steps = [answer.added(answer.PROBE_STEP, 0, f"no instance was asked; {NO_WORDS}")]
    if any(f.get("id") == LOCK_ID for f in plan.get("findings") or []):
        # A deploy or teardown works there: what fails meanwhile may be what it is about to replace.
        steps = [answer.postponed(one) for one in steps]
    cards = {(str(card["backend"]), card["index"]): card for card in _cards(plan)}
    used = sorted({int(c) for i in planned.get("instances") or [] for rank in i.get("cards") or [] for c in rank})
    backend = str(planned.get("backend"))
    return {
        "name": str(planned["name"]),
        "answer": answer.of_service(steps),
        "steps": steps,
        "evidence": str(probe["evidence"]) if probe else "",
        "manifest": probe["manifest"] if probe else None,
        "load": probe["load"] if probe else None,
        "cards": [_card(cards[backend, index]) for index in used if (backend, index) in cards],
    }


def _refusal(planned: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[str, str]:
    """(why the plan refuses, what to do): this service's own findings, else all that refuse on the host."""
    refusing = [f for f in plan.get("findings") or [] if f.get("severity") == "refuse"]
    own = [f for f in refusing if str(planned["name"]) in f"{f.get('where')} {f.get('what')}"]
    found = own or refusing
    what = "; ".join(f"{f.get('id')} {f.get('what')}" for f in found)
    do = "; ".join(dict.fromkeys(str(f.get("do")) for f in found))
    return f"it was not asked, because the plan refuses it: {what or NO_WORDS}"[:2000], do[:1000]


def _cards(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cards as the survey has them, by backend; the plan's own rows where there is no survey."""
    try:
        survey = json.loads(str(plan.get("survey_json") or "{}"))
        return [{**card, "backend": kind} for kind, cards in survey["cards"].items() for card in cards]
    except (ValueError, KeyError, AttributeError, TypeError):
        return [dict(card) for card in plan.get("cards") or []]


def _card(card: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("index", "name", "memory_used_mib", "memory_total_mib", "temperature_c")
    return {**{key: card.get(key) for key in keys}, "utilization": card.get("utilization_pct")}
