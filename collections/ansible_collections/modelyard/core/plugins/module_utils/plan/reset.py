"""May these cards be reset, and what does a refused reset mean? Pure functions, used on the host too: no tables here.

A reset takes a card away from everybody who has it open, and from its neighbours where the hardware resets them together. So it
is done only on a person's word, for exactly the cards that were named, and only when nobody is on them.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

Findings = List[Dict[str, str]]

_ENTRY = re.compile(r"([^:\s,]+):([0-9]+)")
_NVLINK = re.compile(r"NV[0-9]+")
FORM = "write -e confirm_gpu_reset=HOST:CARD, several with a comma between, the numbers as playbooks/preflight.yml shows them"
LOOK = "look with playbooks/preflight.yml which cards there are, and confirm exactly one of those. Nothing was reset"
#: What is left for a person when a card cannot be reset, the mildest first. None of it is ever done by this project.
CHOICES = (
    "then a person's choices are, in this order and after asking everybody who uses the host: end who is on the card; unload and "
    "load the driver's modules (needs all its cards free); reboot"
)


def parsed(text: str) -> Tuple[List[Tuple[str, int]], List[str]]:
    """([(host, card)], entries that are none)."""
    found, wrong = [], []
    for word in (part.strip() for part in text.split(",")):
        entry = _ENTRY.fullmatch(word)
        if entry:
            found.append((entry.group(1), int(entry.group(2))))
        else:
            wrong.append(word)
    return found, wrong


def confirmation(text: str, hosts: Mapping[str, Optional[Sequence[Mapping[str, Any]]]]) -> Findings:
    """What is wrong with a confirmation: all of it, for all hosts, before anything is reset anywhere.

    :param hosts: `backend` and `index` of the cards of every host of the run; None for a host of which they are not known.
    """
    entries, wrong = parsed(text)
    found = [finding("RC-CONFIRM", "confirm_gpu_reset", f"{word!r} does not name a host and a card", FORM) for word in wrong]
    for host, card in dict.fromkeys(entries):
        where = f"confirm_gpu_reset {host}:{card}"
        if entries.count((host, card)) > 1:
            found.append(finding("RC-CONFIRM", where, "it is named twice", LOOK))
        if host not in hosts:
            what = f"{host} is no host of this run; there are: {', '.join(hosts)}"
            found.append(finding("RC-CONFIRM", where, what, LOOK))
            continue
        cards = hosts[host]
        if cards is None:
            what = f"which cards {host} has is not known: its survey or its plan failed"
            found.append(finding("RC-CONFIRM", where, what, "correct that first. Nothing was reset"))
            continue
        backends = sorted({known["backend"] for known in cards if known["index"] == card})
        if len(backends) != 1:
            answering = [known for known in cards if known["index"] is not None]
            shown = ", ".join(f"{known['index']} ({known['backend']})" for known in answering) or "none that answers"
            what = f"several kinds of cards have the number {card}" if backends else f"{host} has no card {card}"
            found.append(finding("RC-CONFIRM", where, f"{what}; its cards: {shown}", LOOK))
    return found


def chosen(text: str, host: str) -> List[int]:
    """The cards of one host that a sound confirmation names, in order."""
    return sorted(card for name, card in parsed(text)[0] if name == host)


def neighbours(indexes: Sequence[int], pairs: Optional[Mapping[str, str]], every: Sequence[int]) -> Set[int]:
    """Cards that may be reset together with these: those linked by NVLink, and those behind them.

    :param pairs: connection by pair (`0-1`), as survey.nvidia_smi.topo reads them; None when not known: then it may be any card.
    """
    if pairs is None:
        return set(every) - set(indexes)
    linked = [{int(one) for one in pair.split("-")} for pair, connection in pairs.items() if _NVLINK.fullmatch(connection)]
    reached = set(indexes)
    while True:
        more = {card for link in linked if link & reached for card in link} - reached
        if not more:
            return reached - set(indexes)
        reached |= more


def judge(
    survey: Mapping[str, Any],
    backend: str,
    named: Sequence[Mapping[str, Any]],
    can_reset: bool,
    pairs: Optional[Mapping[str, str]],
) -> Findings:
    """Everything that forbids the reset, from a survey made right before it.

    :param named: `index` and `bus_id` of the cards, as they were when a person's word was judged.
    :param can_reset: a command is known that resets such cards.
    :param pairs: see neighbours.
    """
    indexes = [card["index"] for card in named]
    host = survey["host"]["name"]
    cards = {card["index"]: card for card in survey["cards"].get(backend, []) if card["index"] is not None}
    found: Findings = []
    if not can_reset:
        what = f"no command is known that resets a card of the backend {backend} reliably"
        found.append(finding("RC-RESET", f"{host}:{backend}", what, f"nothing was tried; {CHOICES}"))
    if survey["host"]["uid"] != 0:
        what = f"user {survey['host']['user']} is not root, and only root may reset a card"
        do = "run again with -e recover_reset_become=true, so that this one task uses sudo, or log in as root"
        found.append(finding("RC-RESET", host, what, do))
    gone = [index for index in indexes if index not in cards]
    for index in gone:
        what = "it does not answer any more, so the tool cannot reset it"
        found.append(finding("RC-RESET", f"{host}:card {index}", what, f"nothing was tried; {CHOICES}"))
    for card in named:
        now = cards.get(card["index"])
        if now is not None and now["bus_id"] != card["bus_id"]:
            what = f"it is another card now ({now['bus_id']}) than a moment ago ({card['bus_id']})"
            found.append(finding("RC-RESET", f"{host}:card {card['index']}", what, LOOK))
    state = survey["accelerators"].get(backend, {}).get("process_list", "unknown")
    if state not in ("none", "listed"):
        what = f"who uses the cards is not known whole: the tool's list of processes is {state}"
        do = "look on the host itself (outside of containers), until the tool can tell. Nothing was reset"
        found.append(finding("RC-RESET", f"{host}:{backend}", what, do))
    together = neighbours(indexes, pairs, sorted(cards))
    for index in sorted({*indexes, *together} - set(gone)):
        why = "" if index in indexes else _why_together(indexes, pairs)
        found += _in_use(survey, cards[index], why)
    return found


def _why_together(indexes: Sequence[int], pairs: Optional[Mapping[str, str]]) -> str:
    named = ", ".join(map(str, indexes))
    if pairs is None:
        return f" (it may be reset together with card {named}: how they are linked is not known)"
    return f" (linked by NVLink with card {named}: they may have to be reset together)"


def _in_use(survey: Mapping[str, Any], card: Mapping[str, Any], why: str) -> Findings:
    """Who is on a card, in whichever way it shows."""
    where = f"{survey['host']['name']}:card {card['index']} ({card['bus_id']})"
    found: Findings = []
    pids = sorted({*card["holders"], *(process["pid"] for process in card["processes"])})
    if pids:
        what = f"{'; '.join(_process(pid, survey) for pid in pids)}{why}"
        do = (
            "ask them, or end what is yours; a daemon that only keeps cards awake counts as well (nvidia-smi -pm 0 -i "
            f"{card['uuid'] or card['index']} lets the card go, -pm 1 afterwards). Then run again. Nothing was reset"
        )
        found.append(finding("RC-RESET", where, f"it is in use by {what}", do))
    names = {card["uuid"], card["bus_id"]} - {""}
    for name, seen in sorted(survey["services"].items()):
        on_it = [i["index"] for i in seen["instances"] if i["alive"] and any(_is(device, names) for device in i["devices"])]
        if on_it:
            what = f"instance {', '.join(map(str, on_it))} of the service {name} runs there{why}"
            do = f"take it down first: playbooks/teardown.yml -e teardown_service={name}. Nothing was reset"
            found.append(finding("RC-RESET", where, what, do))
    return found


def _is(device: Any, names: Set[str]) -> bool:
    return isinstance(device, dict) and bool({device.get("uuid"), device.get("bus_id")} & names)


def _process(pid: int, survey: Mapping[str, Any]) -> str:
    seen = survey["processes"].get(str(pid))
    if seen is None:
        return f"pid {pid}, which is not to be seen here (gone, or in another container)"
    ended = f", ended (state {seen['state']}, parent {seen['ppid']})" if seen["state"] in "ZX" else ""
    return f"pid {pid} of user {seen['user']} ({(seen['command'] or seen['comm'])[:120]}{ended})"


#: What a refused reset means, by the reason that survey.nvidia_smi.reset reads out of it, and what a person can do.
MEANINGS: Dict[str, Tuple[str, str]] = {
    "in_use": (
        "somebody still has the card open. That is no proof of a job that was left over: persistence mode and its daemon, a "
        "monitor or a display count as well, and processes of other containers are not seen from here",
        "look with fuser -v /dev/nvidia* as root on the host; switch persistence mode off for the card (nvidia-smi -pm 0 -i "
        "{ids}), run again, switch it on afterwards. If it stays",
    ),
    "not_supported": (
        "this card with this driver cannot be reset alone; trying again changes nothing",
        "do not try again",
    ),
    "primary_gpu": ("the card draws the console's picture, and is not reset for that", "do not try again"),
    "insufficient_permissions": ("only root may reset a card", "run again with -e recover_reset_become=true, or as root"),
    "gpu_lost": ("the card does not answer any more: a reset does not reach it", "do not try again"),
}


def verdict(answer: Mapping[str, Any], reading: Mapping[str, Any], cards: Sequence[Mapping[str, Any]], host: str) -> Findings:
    """What the tool has said to the reset of `cards`; empty when all of them were reset.

    :param answer: of survey.tool.run. `reading`: of survey.nvidia_smi.reset.read.
    """
    ids = ",".join(str(card["uuid"]) for card in cards)
    where = f"{host}:card {', '.join(str(card['index']) for card in cards)}"
    if answer["timed_out"]:
        what = f"the reset did not come to an end: {answer['note']}"
        do = "keep the kernel log; the card hangs in the driver, and no signal helps"
        return [finding("RC-RESET-FAILED", where, what, f"{do}; {CHOICES}")]
    done = {_short(entry["bus_id"]) for entry in reading["resets"] if entry["ok"]}
    found: Findings = []
    for card in cards:
        if _short(card["bus_id"]) in done:
            continue
        said = [entry for entry in reading["resets"] if _short(entry["bus_id"]) == _short(card["bus_id"])]
        reason = next((str(entry["reason"]) for entry in said if entry["reason"]), "")
        kinds = [error["kind"] for error in reading["errors"] if _short(error["bus_id"] or "") in ("", _short(card["bus_id"]))]
        reason = reason or next((kind for kind in kinds if kind in MEANINGS), "")
        words = " ".join(f"{answer['stdout']} {answer['stderr']} {answer['note']}".split())[:400] or "nothing"
        meaning, do = MEANINGS.get(reason, ("no meaning of that is known", "keep the words"))
        what = f"the reset was refused: {meaning}. It said: {words}"
        found.append(finding("RC-RESET-FAILED", f"{host}:card {card['index']}", what, f"{do.format(ids=ids)}; {CHOICES}"))
    return found


def _short(bus_id: str) -> str:
    """A PCI address without the length that its domain was written in."""
    domain, _, rest = str(bus_id).lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else ""


def answers(after: Mapping[str, Any], backend: str, cards: Sequence[Mapping[str, Any]]) -> Findings:
    """Cards that were reset and do not answer well in the survey after it."""
    host, now = after["host"]["name"], after["cards"].get(backend, [])
    found: Findings = []
    for card in cards:
        here = next((c for c in now if c["bus_id"] == card["bus_id"]), None)
        health = here["health"] if here else "not listed any more"
        if here is None or here["index"] is None or health not in ("ok", "degraded"):
            what = f"it was reset and does not answer well: {health}"
            found.append(finding("RC-RESET-FAILED", f"{host}:card {card['index']}", what, f"look into the kernel log; {CHOICES}"))
    return found
