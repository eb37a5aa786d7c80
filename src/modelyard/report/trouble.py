"""What a person does next: the troubles of a run, the same trouble in several places told once. Pure functions."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, Sequence

from modelyard.report import answers, figures
from modelyard.report.answers import Answer
from modelyard.report.record import Host, Run, Service, Step

RESTART = {
    True: "A restart is of use, once the evidence was read.",
    False: "A restart is of no use.",
    None: "Whether a restart is of use is not known: read the evidence first.",
}
#: Nothing was judged, so nothing says that anything is broken.
LEAVE = "Restart nothing: what was not reached may serve."
READ_LOG = "read what Ansible said there, correct it, and run the acceptance again"
WAIT = "nothing: it works for others, and the next run asks again"
LOOK = "look at the record of the run"


@dataclass
class Trouble:
    """One thing to do. `where`: places; `evidence`: folders on the hosts, in the order of the places."""

    answer: Answer
    what: str
    detail: str
    next: str
    restart: str
    cause: str = ""
    where: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)


def first(service: Service) -> list[Step]:
    """The first step, in the order of the ladder, that failed (else: that was busy), on every instance where it was so."""
    for wanted in ("fail", "busy", "unknown"):
        bad = [step for step in service.steps if step.verdict.id == wanted]
        if bad:
            order = list(dict.fromkeys(step.id for step in service.steps))
            earliest = min(bad, key=lambda step: order.index(step.id)).id
            return [step for step in bad if step.id == earliest]
    return []


def troubles(run: Run) -> list[Trouble]:
    """All of a run, worst first."""
    found: dict[Any, Trouble] = {}
    for host in run.hosts:
        judged = [service for service in host.services if service.answer.id != "accepted"]
        if host.answer.id != "accepted" and (host.problem or not judged):
            _add(found, _of_host(run, host), host.name, "")
        for service in judged:
            if not (host.problem and service.answer == host.answer and not service.steps):
                _add(found, _of_service(service), _place(host, service), service.evidence)
    return sorted(found.values(), key=lambda trouble: answers.rank(trouble.answer))


def _add(found: dict[Any, Trouble], trouble: Trouble, place: str, evidence: str) -> None:
    """The first place gives the words; others with the same trouble are added to it."""
    same = (trouble.answer, trouble.what, trouble.cause or trouble.detail, trouble.next, trouble.restart)
    known = found.setdefault(same, trouble)
    known.where.append(place)
    known.evidence += [evidence] if evidence else []


def _place(host: Host, service: Service) -> str:
    indexes = sorted({step.instance for step in first(service)})
    some = len(service.instances) > 1 and indexes
    return f"{host.name} {service.name}{'/' + figures.numbers(indexes) if some else ''}"


def _of_host(run: Run, host: Host) -> Trouble:
    answer = host.answer
    if answer.id == "unreachable":
        where = f" -i {shlex.quote(run.inventory)}" if run.inventory else ""
        do = f"see whether it is up and lets you in: ansible{where} {shlex.quote(host.name)} -m ansible.builtin.ping"
        return Trouble(answer, "was not reached", host.problem, do, LEAVE)
    if answer.id == "busy":
        return Trouble(answer, "is busy", host.problem, WAIT, RESTART[False])
    if answer.id == "failed":
        return Trouble(answer, "failed", host.problem, READ_LOG, RESTART[None])
    return Trouble(answer, answer.words, host.problem, READ_LOG, LEAVE)


def _of_service(service: Service) -> Trouble:
    bad: Sequence[Step] = first(service)
    if not bad:
        return Trouble(service.answer, answers.HEADLINES[service.answer.id].lower(), "", LOOK, RESTART[None])
    step = bad[0]
    if step.verdict.id == "busy":
        return Trouble(service.answer, f"busy at {step.id}", step.detail, step.next or WAIT, RESTART[False], step.cause)
    do = step.next or ("read the evidence" if service.evidence else LOOK)
    return Trouble(service.answer, f"failed at {step.id}", step.detail, do, RESTART[step.restart], step.cause)
