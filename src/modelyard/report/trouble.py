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
LEAVE = "Restart nothing: what was not judged may serve."
SERVES = "Restart nothing: it serves."
ARROW = " -> "
UNREACHABLE = "unreachable"
READ_LOG = "read what Ansible said there, correct it, and run the acceptance again"
WAIT = "nothing: it works for others, and the next run asks again"
LOOK = "look at the record of the run"


@dataclass
class Trouble:
    """One thing to do. `where`: places; `evidence`: HOST:FOLDER, in the order of the places."""

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
            _add(found, _of_host(host), host.name, "")
        for service in judged:
            if not (host.problem and service.answer == host.answer and not service.steps):
                evidence = f"{host.name}:{service.evidence}" if service.evidence else ""
                _add(found, _of_service(service), _place(host, service), evidence)
    for trouble in found.values():
        if trouble.answer.id == UNREACHABLE:
            trouble.next = _ping(run, trouble.where)
    return sorted(found.values(), key=lambda trouble: answers.rank(trouble.answer))


def _ping(run: Run, hosts: Sequence[str]) -> str:
    """One command for all of them, as long as it stays readable."""
    where = "".join(f" -i {shlex.quote(one)}" for one in run.inventory.split(", ") if one)
    names = shlex.quote(",".join(hosts)) if len(hosts) <= 10 else "HOST"
    return f"see whether {'it is' if len(hosts) == 1 else 'they are'} up: ansible{where} {names} -m ansible.builtin.raw -a true"


def _add(found: dict[Any, Trouble], trouble: Trouble, place: str, evidence: str) -> None:
    """The first place gives the words; others with the same trouble are added to it."""
    same: tuple[Any, ...] = (trouble.answer, trouble.what, trouble.cause or trouble.detail, trouble.next, trouble.restart)
    if trouble.answer.id == UNREACHABLE:  # whose messages name the host
        same = same[:2]
    known = found.setdefault(same, trouble)
    known.where.append(place)
    known.evidence += [evidence] if evidence else []


def _place(host: Host, service: Service) -> str:
    indexes = sorted({step.instance for step in first(service)})
    some = len(service.instances) > 1 and indexes
    return f"{host.name} {service.name}{'/' + figures.numbers(indexes) if some else ''}"


def _of_host(host: Host) -> Trouble:
    answer = host.answer
    # Findings are written as `what -> what to do`.
    detail, arrow, do = host.problem.partition(ARROW)
    if answer.id == UNREACHABLE:
        return Trouble(answer, "not reached", detail, "", LEAVE)
    if answer.id == "busy":
        return Trouble(answer, "is busy", host.problem, WAIT, SERVES)
    if ARROW in do:
        detail, do = host.problem, "do what stands behind each arrow"
    restart = RESTART[None] if answer.id == "failed" else LEAVE
    return Trouble(answer, answer.words, detail, do if arrow else READ_LOG, restart)


def _of_service(service: Service) -> Trouble:
    bad: Sequence[Step] = first(service)
    if not bad:
        return Trouble(service.answer, answers.HEADLINES[service.answer.id].lower(), "", LOOK, RESTART[None])
    step = bad[0]
    if step.verdict.id == "busy":
        return Trouble(service.answer, f"busy at {step.id}", step.detail, step.next or WAIT, SERVES, step.cause)
    do = step.next or ("read the evidence" if service.evidence else LOOK)
    return Trouble(service.answer, f"failed at {step.id}", step.detail, do, RESTART[step.restart], step.cause)
