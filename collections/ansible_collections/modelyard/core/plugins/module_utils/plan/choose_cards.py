"""Which cards each instance gets. A pure function of inventory and survey; the same input gives the same choice.

An instance that runs keeps its cards as long as the inventory allows it, and one that has ended gets those back that it had.
`all` and a number of cards take what is healthy and what no stranger and no other service has; a list is taken as named. Every
instance has a place of its own, also where a card is dead: the trouble of one card never moves the other instances.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.plan import closeness, launch, slots, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.choice import NOT_KNOWN, Choice
from ansible_collections.modelyard.core.plugins.module_utils.plan.slots import Slot

NOT_SEEN = "no such card is to be seen"


def choose(services: Sequence[Mapping[str, Any]], survey: Mapping[str, Any]) -> List[Choice]:
    """The choice for every service of a host, in their order."""
    found = [Choice(wanted) for wanted in services]
    for backend in dict.fromkeys(str(wanted["backend"]) for wanted in services):
        mine = [choice for choice in found if choice.wanted["backend"] == backend]
        if tables.backend(backend).get("cores_as_cards"):
            _cores(mine, [card["index"] for card in survey["cards"].get(backend, [])])
        else:
            _cards(mine, backend, survey)
    return found


def _cores(services: Sequence[Choice], present: Sequence[int]) -> None:
    """Cores are spread evenly over the ranks. Services may share them: one that finds too few of its own takes all of them."""
    claimed = {int(name) for service in services if service.named for name in service.wanted["cards"]}
    for service in services:
        names = [int(name) for name in service.wanted["cards"]] if service.named else []
        service.unseen = [str(core) for core in names if core not in present]
        left = [core for core in present if core not in claimed]
        mine = names if service.named else list(present if len(left) < service.needed else left)[: service.count]
        service.pool = [Slot(f"#{core}", core, core, "", "", "", {}) for core in mine]
        service.places = list(service.pool)
        if service.unseen or len(mine) < service.needed:
            service.lacking = dict.fromkeys(range(service.replicas), "there are too few cores")
            continue
        ranks = launch.spread(mine, service.needed)
        service.ranks = {i: ranks[i * service.tp : (i + 1) * service.tp] for i in range(service.replicas)}
        claimed |= set(service.used)


def _cards(services: Sequence[Choice], backend: str, survey: Mapping[str, Any]) -> None:
    """Accelerators, one card a rank. Who runs comes first, then who has a place or had one, then who must take another."""
    variable = str(tables.backend(backend)["visibility"])
    every = slots.of(backend, survey, [_running(service, backend, survey, variable) for service in services])
    seen = survey["accelerators"].get(backend)
    told = seen is not None and (seen["tool"]["state"] == "ok" or any(place.index is not None for place in every))
    links = closeness.Map(seen["links"] if seen else {}, every)
    taken: Dict[str, str] = {}
    for service in services:
        service.known, service.links = told, links
        _allow(service, every)
    named = {place.id for service in services if service.named for place in service.places}
    for service in services:
        _keep(service, survey, variable, every, taken)
        if not service.named:
            service.places = [place for place in every if place.id not in named]
    _aim(services)
    for service in services:
        for index, instance in _instances(service, survey, alive=False).items():
            if not service.named:
                service.offer(index, slots.ran_on(instance, variable, every), taken)
    for service in services:
        for index, places in service.targets.items():
            service.offer(index, places, taken)
    for service in services:
        for index in range(service.replicas):
            free = [place for place in service.places if service.is_free(place, taken)]
            service.offer(index, free[: service.tp] if service.named else links.best(free, service.tp), taken)
            if index not in service.ranks:
                service.lacking[index] = NOT_KNOWN if not told else service.why(index, taken) or "there is no further card"


def _running(service: Choice, backend: str, survey: Mapping[str, Any], variable: str) -> Dict[str, Any]:
    """A service as the checks of users want it: with the numbers of the cards that it runs on."""
    alive = _instances(service, survey, alive=True).values()
    places = slots.answering(survey["cards"].get(backend, []))
    on = {place.index for instance in alive for place in slots.ran_on(instance, variable, places) if place.index is not None}
    return {"name": service.name, "backend": backend, "action": lookup.KEPT if alive else "start", "cards": sorted(on)}


def _instances(service: Choice, survey: Mapping[str, Any], alive: bool) -> Dict[int, Mapping[str, Any]]:
    seen = survey["services"].get(service.name)
    return {int(i["index"]): i for i in (seen["instances"] if seen else []) if bool(i["alive"]) is alive}


def _allow(service: Choice, every: Sequence[Slot]) -> None:
    """The places that the inventory names, in its order, or all of them."""
    if not service.named:
        service.places = list(every)
        return
    for name in service.wanted["cards"]:
        place = slots.find(name, every)
        if place is None:
            service.unseen.append(name)
            number = int(name) if name.isdecimal() else None
            place = Slot(f"?{name}", number, None, "", NOT_SEEN, "", {})
        service.places.append(place)


def _keep(service: Choice, survey: Mapping[str, Any], variable: str, every: Sequence[Slot], taken: Dict[str, str]) -> None:
    """What runs stays where it is. One whose card does not answer any more has its place still, but nothing to be started on."""
    for index, instance in _instances(service, survey, alive=True).items():
        places = slots.ran_on(instance, variable, every)
        goes_on = index < service.replicas and len(places) == service.tp and all(place in service.places for place in places)
        mine = [place for other in service.given.values() for place in other]
        if not service.known:
            if index < service.replicas:
                service.blind.append(index)
                service.ranks[index] = _numbers(instance, variable)
        elif goes_on and not any(place in mine for place in places):
            if all(place.index is not None for place in places):
                service.give(index, places, taken)
            else:
                service.targets[index] = places
        elif index >= service.replicas:  # it is to be stopped, but it may be that this run is not about it
            for place in places:
                taken.setdefault(place.id, f"{service.name}/{index}")


def _numbers(instance: Mapping[str, Any], variable: str) -> List[List[int]]:
    """The cards of a running instance by the numbers that they had at its start; empty where it has no such numbers."""
    noted = [str(device["index"]) for device in instance["devices"]]
    words = noted or str(instance["launch"]["environment"].get(variable, "")).split(",")
    return [[int(word)] for word in words] if all(word.isdecimal() for word in words) else []


def _aim(services: Sequence[Choice]) -> None:
    """Where each instance belongs while all cards are well: decided by the inventory and the places alone."""
    owned: Set[str] = set()
    for service in services:
        service.pool = [place for place in service.places if service.named or place.id not in owned]
        if service.tp == 1 or service.named:
            groups = [service.pool[i : i + service.tp] for i in range(0, len(service.pool), service.tp)]
        else:
            groups = service.links.groups(service.pool, service.tp)
        if service.count is not None:
            groups, service.pool = groups[: service.count // service.tp], service.pool[: service.count]
        for index, group in enumerate(groups[: service.replicas]):
            if len(group) == service.tp:
                service.targets.setdefault(index, group)
        if not service.named:
            owned |= {place.id for places in service.targets.values() for place in places}
