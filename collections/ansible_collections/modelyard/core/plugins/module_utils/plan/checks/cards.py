"""The cards themselves: are they all there, healthy, in the order they were, and may this user open them?"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

#: Events of the kernel log that are about processes and not about cards.
HOST_EVENTS = {"oom_kill", "hung_task", "segfault"}
#: Xids that are the fault of a program as a rule (bad instruction, page fault, reset of a channel, ended by force).
PROGRAM_XIDS = {13, 31, 43, 45}
LINE_SHOWN = 120
SPLIT_UP = "it is split up (MIG is enabled), which this version does not serve on"
PROHIBITED = "its compute mode is Prohibited: no process may compute on it"
#: health -> (id, what it means, what to do). No reset and no reboot is ever done by the project.
HEALTH = {
    "lost": (
        "PF-CARD-LOST",
        "it does not answer any more",
        "look into the kernel log; mostly only a reboot, or power off and on, brings it back. Ask the other users first",
    ),
    "needs_reset": (
        "PF-CARD-NEEDS-RESET",
        "the driver says that it must be reset",
        "when nobody uses it: an admin resets that one card (as root), or reboots. Nothing was reset",
    ),
    "error": (
        "PF-CARD-ERRORS",
        "its name, address or utilisation reads as an error",
        "take it out of cards, and look into the kernel log; if it stays so after a reboot, have it replaced",
    ),
    "degraded": (
        "PF-CARD-DEGRADED",
        "a sensor or a counter of it reads as an error, or its infoROM is damaged",
        "watch it: the kernel log and the tensor test say more",
    ),
    "unknown": (
        "PF-CARD-UNKNOWN",
        "it is on the bus, but the vendor's tool tells nothing live about it",
        "look into the kernel log, and whether the tool and the driver are meant for this card",
    ),
}


def findings(intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Cards that services want are judged by the catalogue; the others are noted. Without services, every card is wanted."""
    found = _expected(intent["cards_expected"], survey)
    for backend, seen in sorted(survey["accelerators"].items()):
        if seen["tool"]["state"] in ("ok", "unreadable", "failed"):
            for card in survey["cards"].get(backend, []):
                mine = lookup.wants(card, backend, survey, services)
                found += _card(card, mine, seen["tool"]["state"] == "ok", survey)
        found += _order(backend, intent["home"], survey, services)
        found += _device_files(backend, seen, survey, services)
    return [*found, *_gone(intent["home"], survey, services), *_log(survey, services)]


def unusable(card: Mapping[str, Any]) -> str:
    """Why no engine can work on a card, in words; empty when one can, as far as is known."""
    if card["health"] in HEALTH and card["health"] != "degraded":
        return HEALTH[card["health"]][1]
    if card["mig"]:
        return SPLIT_UP
    if str(card["compute_mode"]) == "Prohibited":
        return PROHIBITED
    return "it has no number" if card["index"] is None else ""


def _card(card: Mapping[str, Any], mine: bool, told: bool, survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    where = lookup.place(survey, card)
    found = []
    # Where the tool cannot be relied on (not `told`) a finding says so; that nothing is known of the cards follows from it.
    if card["health"] in HEALTH and (told or card["health"] != "unknown"):
        id, what, do = HEALTH[card["health"]]
        found.append(finding(id, where, what, do))
    mode = str(card["compute_mode"])
    if card["mig"]:
        do = "leave it out of cards, or have an admin disable MIG while nobody uses it"
        found.append(finding("PF-CARD-MODE", where, SPLIT_UP, do))
    elif mode == "Prohibited":
        do = f"an admin allows computing again: nvidia-smi -i {card['bus_id'] or card['index']} -c DEFAULT"
        found.append(finding("PF-CARD-MODE", where, PROHIBITED, do))
    if mine or not found:
        return found
    what = f"no service wants this card; {'; '.join(f['what'] for f in found)}"
    return [finding("PF-CARD-OTHER", where, what, "nothing for these services; tell the one who looks after the host")]


def _expected(expected: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    host = survey["host"]["name"]
    backends = [backend for backend in survey["accelerators"] if not lookup.integrated(backend, survey)]
    cards = [card for backend in backends for card in survey["cards"].get(backend, [])]
    answering = [card for card in cards if card["index"] is not None and card["health"] not in ("lost", "unknown")]
    found = []
    if expected["count"] is not None and len(answering) != expected["count"]:
        on_bus = sum(len(survey["accelerators"][backend]["on_bus"]) for backend in backends)
        silent = [lookup.place(survey, card).partition(":")[2] for card in cards if card not in answering]
        more = f" (no answer from {', '.join(silent)})" if silent else ""
        what = f"{expected['count']} card(s) expected, {len(answering)} answer and {on_bus} are on the bus{more}"
        do = "look into the kernel log for the missing one, or correct modelyard_cards_expected.count"
        found.append(finding("PF-CARD-COUNT", host, what, do))
    name = expected["name"]
    other = [card for card in answering if name and card["name"] and name.lower() not in str(card["name"]).lower()]
    if other:
        shown = ", ".join(f"{card['index']}: {card['name'] or 'unknown'}" for card in other)
        what = f"cards whose name holds {name!r} expected; found {shown}"
        found.append(finding("PF-CARD-NAME", host, what, "look at the right host, or correct modelyard_cards_expected.name"))
    return found


def _order(backend: str, home: str, survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Cards that have other numbers than at the last deploy."""
    entries = baseline.known(survey)
    moved = {
        card["index"]: (entries[baseline.key(card)]["index"], baseline.key(card))
        for card in survey["cards"].get(backend, [])
        if baseline.key(card) in entries and card["index"] is not None
        if entries[baseline.key(card)]["index"] not in (None, card["index"])
    }
    if not moved:
        return []
    what = "; ".join(f"{before} is now {now} ({key})" for now, (before, key) in moved.items())
    uses, ask = lookup.by_card(services), lookup.asked(backend, services)
    numbers = {index for now, (before, _) in moved.items() for index in (now, before)}
    touched = not services or any((backend, index) in uses or str(index) in ask for index in numbers)
    do = (
        "a card was added, removed or moved, so cards: [0, 1] may mean other cards now. Correct cards in the inventory, then "
        f"remove {home}/cards.json on the host: the next deploy writes it anew"
    )
    what = f"the numbers of the cards are not those of the last deploy: {what}"
    return [finding("PF-CARD-ORDER" if touched else "PF-CARD-OTHER", f"{survey['host']['name']}:{backend}", what, do)]


def _gone(home: str, survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Cards that a deploy has seen on this host and that are not there any more, as far as their tool has answered."""
    every = [card for cards in survey["cards"].values() for card in cards if card.get("bus_id") or card.get("uuid")]
    here = {name for card in every for name in (card["uuid"], card["bus_id"]) if name}
    silent = {
        backend
        for backend, seen in survey["accelerators"].items()
        if seen["tool"]["state"] != "ok" and not lookup.integrated(backend, survey)
    }
    on_cards = [s for s in services if not tables.backend(s["backend"]).get("cores_as_cards")]
    found = []
    for key, entry in baseline.known(survey).items():
        backends = {entry["backend"]} if entry["backend"] else {s["backend"] for s in on_cards} or set(survey["accelerators"])
        if key in here or entry["bus_id"] in here or backends & silent:
            continue
        if services and not backends & {s["backend"] for s in on_cards}:
            continue
        ask = {card for backend in backends for card in lookup.asked(backend, services)}
        wanted = not services or "all" in ask or str(entry["index"]) in ask
        number = "?" if entry["index"] is None else entry["index"]
        what = (
            f"card {number} ({key}, {entry['bus_id'] or 'unknown address'}), which a deploy has seen here, is not there any more"
        )
        do = f"look into the kernel log and at the card; if it was taken out on purpose, remove its entry from {home}/cards.json"
        found.append(finding("PF-CARD-GONE" if wanted else "PF-CARD-OTHER", f"{survey['host']['name']}:cards", what, do))
    return found


def _device_files(
    backend: str, seen: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]
) -> List[Dict[str, str]]:
    mine = [card for card in survey["cards"].get(backend, []) if lookup.wants(card, backend, survey, services)]
    if survey["platform"]["wsl"] or not (mine or not services) or lookup.integrated(backend, survey):
        return []
    files = [f for card in mine for f in card["device_files"]] + list(seen["shared_files"] if mine else [])
    entry, host, user = tables.backend(backend), survey["host"]["name"], survey["host"]["user"]
    found = []
    denied = [f for f in files if f["state"] == "denied" and not f["path"].startswith(tuple(entry.get("may_be_denied", ())))]
    if denied:
        shown = ", ".join(f["path"] + (f" ({f['owner']}:{f['group']} {f['mode']})" if f["owner"] else "") for f in denied)
        groups = sorted({f["group"] for f in denied if int(f["mode"] or "0", 8) & 0o060 == 0o060 and f["group"] != "root"})
        do = "an admin gives this user the right to read and write them"
        if groups:
            do = f"an admin adds {user} to the group {' and '.join(groups)}; log in again afterwards"
        found.append(finding("PF-DEVICE-DENIED", f"{host}:{backend}", f"user {user} may not open {shown}", do))
    missing = [f["path"] for f in files if f["state"] == "missing"]
    absent = [path for path in missing if not path.startswith(tuple(entry.get("may_be_missing", ())))]
    if absent:
        do = "load the driver's modules; in a container the files must be passed in"
        found.append(finding("PF-DEVICE-MISSING", f"{host}:{backend}", f"device files are missing: {', '.join(absent)}", do))
    return found


def _log(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """What the kernel has said since the boot about cards that count, and about the ends of processes."""
    where = f"{survey['host']['name']}:kernel log"
    others = {
        card["bus_id"]
        for backend in survey["accelerators"]
        for card in survey["cards"].get(backend, [])
        if not lookup.wants(card, backend, survey, services)
    }
    events = [event for event in survey["kernel_log"]["events"] if not event["bus_id"] or event["bus_id"] not in others]
    by_program = [e["kind"] in HOST_EVENTS or (e["kind"] == "xid" and e["xid"] in PROGRAM_XIDS) for e in events]
    on_cards = [event["line"] for event, program in zip(events, by_program) if not program]
    on_host = [event["line"] for event, program in zip(events, by_program) if program]
    found = []
    on_accelerators = any(service["backend"] in survey["accelerators"] for service in services)
    if on_cards and (on_accelerators or not services):
        do = "compare the time with that of the trouble, and look at the card's health and the tensor test"
        found.append(finding("PF-CARD-LOG", where, f"since the boot: {_last(on_cards)}", do))
    if on_host:
        do = "if it was an engine: compare the time with its log; leftovers may hold memory since then"
        found.append(finding("PF-HOST-LOG", where, f"since the boot: {_last(on_host)}", do))
    return found


def _last(lines: Sequence[str]) -> str:
    """The last three, each short enough to read."""
    kept = list(dict.fromkeys(line[:LINE_SHOWN] for line in lines))
    more = f" (and {len(kept) - 3} more)" if len(kept) > 3 else ""
    return " | ".join(kept[-3:]) + more
