"""Who uses the cards: strangers, and memory that nobody holds.

A vendor's tool says who computes on a card, but not everybody: processes of other containers, of other users, or none at all.
The kernel says who has the card's device file open, but a process often opens the files of all cards and uses one. So a process
that the tool names on a card uses it; one that only holds the file is a suspect, and counts when memory is missing an owner.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_records import TOLERANCE_MIB

BUSY_PCT = 95.0
#: Beginnings of what a survey could not read that have nothing to do with processes.
NOT_PROCESSES = ("the kernel's log", "the shell's settings")


class Users(NamedTuple):
    """Pids on one card, bystanders left out."""

    named: List[int]  # the tool names them, they live, and they are not ours
    gone: List[int]  # the tool names them, and they are not to be seen
    silent: List[int]  # they hold a device file without being named, and are not ours


def findings(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Cards that a service is to be started on are judged; of the others it is noted who uses them."""
    fresh, uses = lookup.by_card(services, fresh=True), lookup.by_card(services)
    planned = {service["name"] for service in services}
    found: List[Dict[str, str]] = []
    for backend, seen in sorted(survey["accelerators"].items()):
        cards = survey["cards"].get(backend, [])
        spare = [c for c in cards if c["index"] is not None and (backend, c["index"]) not in uses]
        free = [str(c["index"]) for c in spare if baseline.is_idle(c, survey, backend)]
        judged = [card for card in cards if not services or (backend, card["index"]) in uses]
        for card in cards:
            users = _users(card, backend, survey, planned)
            found += _strangers(card, users, (backend, card["index"]) in fresh, free, survey)
            # Without a service every card is looked at for memory that nobody holds.
            if (backend, card["index"]) in fresh or not services:
                found += _memory(card, backend, users, (backend, card["index"]) in fresh, survey, services)
        unknown = seen["process_list"] in ("unknown", "partial")
        if judged and unknown and seen["tool"]["state"] not in ("missing", "hangs"):
            inside = bool(survey["platform"]["container"])  # the tool's pids are those of the machine outside
            pids = [p["pid"] for p in seen["unplaced_processes"] if not inside and not lookup.owner(p["pid"], survey)]
            more = f"; on some card: {'; '.join(lookup.process(pid, survey) for pid in pids)}" if pids else ""
            what = f"who uses the cards is not known whole: the tool's list of processes is {seen['process_list']}{more}"
            do = "as root more is seen; inside a container the processes of other containers are not"
            found.append(finding("PF-CARD-USERS-UNKNOWN", f"{survey['host']['name']}:{backend}", what, do))
    return found


def taken_by(card: Mapping[str, Any], backend: str, survey: Mapping[str, Any], running: Sequence[Mapping[str, Any]]) -> str:
    """Who else uses a card, or what memory on it nobody holds, in words; empty for a card that can be given away.

    `running`: {name, backend, action, cards} of each service of the plan, with the cards that it runs on.
    """
    users = _users(card, backend, survey, {service["name"] for service in running})
    found = _strangers(card, users, True, [], survey) + _memory(card, backend, users, True, survey, running)
    return next((item["what"] for item in found if item["id"] in ("PF-STRANGER", "PF-MEMORY-HELD")), "")


def _users(card: Mapping[str, Any], backend: str, survey: Mapping[str, Any], planned: Set[str]) -> Users:
    """`planned`: services of the plan. What they run ends before anything starts; others of ours are users like everybody."""
    by_tool = {p["pid"] for p in card["processes"]}
    trusted = lookup.named(card, survey)
    others = [
        pid
        for pid in baseline.users(card, survey, backend)
        if lookup.owner(pid, survey) not in planned or (pid in by_tool and pid not in trusted)
    ]
    gone = [pid for pid in others if pid in by_tool and (str(pid) not in survey["processes"] or pid not in trusted)]
    living = [pid for pid in others if pid not in gone and not lookup.is_zombie(pid, survey)]
    return Users([pid for pid in living if pid in by_tool], gone, [pid for pid in living if pid not in by_tool])


def _strangers(
    card: Mapping[str, Any], users: Users, fresh: bool, free: Sequence[str], survey: Mapping[str, Any]
) -> List[Dict[str, str]]:
    if not users.named:
        return []
    where = lookup.place(survey, card)
    held = {p["pid"]: p["memory_mib"] for p in card["processes"]}
    what = "; ".join(f"{lookup.process(pid, survey)} uses {_mib(held[pid])}" for pid in users.named)
    if not fresh:
        return [finding("PF-CARD-IN-USE", where, what, "nothing: no service is to be started on this card")]
    other = f"another card (idle: {', '.join(free)})" if free else "another card"
    return [finding("PF-STRANGER", where, what, f"ask that user, or take {other}; the process is left alone")]


def _mib(amount: Any) -> str:
    return "an unknown amount" if amount is None else f"{amount} MiB"


def _memory(
    card: Mapping[str, Any],
    backend: str,
    users: Users,
    fresh: bool,
    survey: Mapping[str, Any],
    services: Sequence[Mapping[str, Any]],
) -> List[Dict[str, str]]:
    where = lookup.place(survey, card)
    used, total = card["memory_used_mib"], card["memory_total_mib"]
    if card["health"] in ("lost", "unknown"):
        return []
    if used is None or _ours(card, backend, survey, services):
        # What our own processes take need not be known: they end before anything is started.
        return _silent(card, users, "how much of its memory they use is not known", survey)
    idle, written = baseline.idle_mib(card, survey, backend)
    known = {p["pid"]: p["memory_mib"] for p in card["processes"] if p["pid"] not in users.gone}
    explained = sum(amount or 0 for amount in known.values())
    unknown = any(amount is None and not baseline.is_bystander(pid, survey, backend) for pid, amount in known.items())
    if unknown or used - idle - explained <= TOLERANCE_MIB:
        return _quiet(card, users, survey)
    base = f"{idle} MiB, {'as written down at a deploy' if written else 'assumed: none was written down on this host yet'}"
    what = f"{used} MiB of {_mib(total)} are in use, {explained} of it by processes that are known; idle is {base}"
    if users.silent:
        shown = "; ".join(lookup.process(pid, survey) for pid in users.silent)
        what = f"{what}. These have the card open: {shown}"
        if fresh:
            return [finding("PF-STRANGER", where, what, "ask that user; the process is left alone")]
        return [finding("PF-CARD-IN-USE", where, what, "nothing: no service is to be started on this card")]
    names = f"; the tool still names {', '.join(f'pid {pid}' for pid in users.gone)}" if users.gone else ""
    unseen = _unseen(card, backend, survey, services)
    if unseen:
        what = f"{what}{names}. Its owner may be there and not to be seen: {'; '.join(unseen)}"
        do = "look with more rights first (as root, outside of a container); memory can also come back late"
    else:
        what = f"{what}{names}. No living process holds the rest"
        do = (
            "look again in a minute, it can come back late. Then, after asking everybody who uses the host, an admin resets the "
            "card or reloads the driver"
        )
    return [finding("PF-MEMORY-HELD", where, what, do)]


def _ours(card: Mapping[str, Any], backend: str, survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> bool:
    """Is a process of the plan's services on it that may hold memory which the tool does not show as its own?

    A service that runs on with other cards often has the files of all cards open: it is no reason.
    """
    owners = {lookup.owner(pid, survey) for pid in [*card["holders"], *lookup.named(card, survey)]}
    return bool(owners & {s["name"] for s in services} - _elsewhere(card, backend, services))


def _elsewhere(card: Mapping[str, Any], backend: str, services: Sequence[Mapping[str, Any]]) -> Set[str]:
    """Services that run on as they are, with other cards than this one."""
    return {
        s["name"]
        for s in services
        if s["action"] == lookup.KEPT and not (s["backend"] == backend and card["index"] in s["cards"])
    }


def _silent(card: Mapping[str, Any], users: Users, how: str, survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    if not users.silent:
        return []
    shown = "; ".join(lookup.process(pid, survey) for pid in users.silent)
    what = f"these have the card's device file open, {how}: {shown}"
    do = "nothing, unless the card must be reset: it counts as in use then"
    return [finding("PF-HOLDER", lookup.place(survey, card), what, do)]


def _quiet(card: Mapping[str, Any], users: Users, survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Nothing is missing: who has the card open, and whether it is busy with nothing."""
    found = _silent(card, users, "but use none of its memory", survey)
    busy = card["utilization_pct"] is not None and card["utilization_pct"] >= BUSY_PCT
    if busy and not card["processes"] and not users.silent:
        what = f"{card['utilization_pct']:.0f} % busy, without a process and without memory in use"
        do = "a process was killed in the middle of its work; computing goes on as a rule, and the tensor test decides"
        found.append(finding("PF-BUSY-WITHOUT-PROCESS", lookup.place(survey, card), what, do))
    return found


def _unseen(card: Mapping[str, Any], backend: str, survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[str]:
    """Why a holder may be there all the same."""
    reasons = [text for text in survey["not_readable"] if not text.startswith(NOT_PROCESSES)]
    seen = survey["accelerators"][backend]
    if seen["process_list"] in ("unknown", "partial"):
        reasons.append(f"the tool's list of processes is {seen['process_list']}")
    # Whoever computes on a DCU or an AMD card has /dev/kfd open, whichever card it is.
    kfd = [pid for pid in seen["shared_holders"] if not baseline.is_bystander(pid, survey, backend)]
    kfd = [pid for pid in kfd if not lookup.owner(pid, survey)] if backend != "nvidia" else []
    if kfd:
        reasons.append("has the common device file open: " + "; ".join(lookup.process(pid, survey) for pid in kfd))
    dumb = [p["pid"] for p in card["processes"] if p["memory_mib"] is None]
    others = [pid for pid in dict.fromkeys([*card["holders"], *dumb]) if str(pid) in survey["processes"]]
    elsewhere = _elsewhere(card, backend, services)
    others = [pid for pid in others if baseline.is_bystander(pid, survey, backend) or lookup.owner(pid, survey) in elsewhere]
    if others:
        shown = "; ".join(lookup.process(pid, survey) for pid in others)
        reasons.append(f"who only looks, or works on other cards, can hold memory, too: {shown}")
    if survey["platform"]["container"] and not any("container" in text for text in reasons):
        reasons.append("processes outside of this container")
    return reasons
