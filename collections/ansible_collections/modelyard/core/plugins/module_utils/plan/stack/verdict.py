"""The verdict on a host: keep, install, upgrade, repair or refuse, with the reasons and the nearest right set. Pure functions.

A host without cards and services has none to give.

host(intent, survey, services, tables)
  -> {action, state, wanted, system, sets: [{service, action, cards, driver, ..., reasons, right}], reasons, before}
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import REFUSE
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, nearest, seen, states, versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.dcu_rules import HYGON
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.known import Tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import (
    COMMON,
    NVIDIA,
    Reason,
    Rule,
    Stack,
    judge,
    refused,
)

NOTHING, KEEP, INSTALL, UPGRADE, REPAIR, REFUSED = "none", "keep", "install", "upgrade", "repair", "refuse"
#: The strongest last: a host has the strongest of its sets.
STRENGTH = (NOTHING, KEEP, INSTALL, UPGRADE, REPAIR, REFUSED)
RULES: Dict[str, Tuple[Rule, ...]] = {"nvidia": NVIDIA, "hygon": HYGON, "cpu": COMMON, "amd": COMMON}
#: Rules whose remedy is no other set.
OWN_REMEDY = {"forward-compat-not-for-geforce", "fabric-manager-exact", "vllm-needs-python"}
#: What a change of the driver needs in /boot for a new initramfs, MiB. A choice.
BOOT_MIB = 500


def host(
    intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]], tables: Tables
) -> Dict[str, Any]:
    """All sets of a host, and what the host itself says about its driver. `services`: as planned."""
    wish: Mapping[str, Any] = intent.get("stack") or {}
    accelerator = survey["accelerators"].get("nvidia")
    system: Mapping[str, Any] = survey.get("stack") or {}
    mine = accelerator if _is_wanted("nvidia", services) else None
    inside = bool(survey["platform"]["container"] or survey["platform"]["wsl"])
    reasons = states.reasons(mine, system, inside) if mine else []
    pinned = str(wish.get("driver", ""))
    state = states.state(accelerator, system, pinned) if accelerator and accelerator["on_bus"] else ""
    found = [_set(one, state, wish, system, tables) for one in seen.sets(intent, survey, services, tables)]
    # The other reasons are put right by an installation or a repair; what a virtual machine has is not ours.
    taken = any(reason.rule == "vfio-bound" and reason.severity == REFUSE for reason in reasons)
    actions = [one["action"] for one in found] + ([REFUSED] if taken else [])
    action = max(actions, key=STRENGTH.index, default=NOTHING)
    return {
        "action": action,
        "state": state,
        "wanted": {key: str(wish.get(key) or "") for key in ("driver", "flavour", "cuda_toolkit", "torch", "cuda", "vllm")},
        "system": dict(system.get("system") or {}),
        "sets": found,
        "reasons": [reason._asdict() for reason in reasons],
        "before": _before(system) if action in (INSTALL, UPGRADE, REPAIR) else [],
    }


def _is_wanted(backend: str, services: Sequence[Mapping[str, Any]]) -> bool:
    return not services or any(service["backend"] == backend for service in services)


def _set(one: seen.Seen, state: str, wish: Mapping[str, Any], system: Mapping[str, Any], tables: Tables) -> Dict[str, Any]:
    """One set with its verdict. What is there is judged first, then what the inventory wants instead."""
    stack, rules = one.stack, RULES[one.stack.backend]
    reasons = judge(stack, tables, rules)
    if stack.backend == "nvidia":
        action, right = _by_state(state, _open_choice(stack, wish), reasons, rules, tables)
    else:
        action, right = _by_rules(stack, reasons, rules, tables)
    wanted = seen.pinned_driver(wish, tables) if stack.backend == "nvidia" else ""
    loaded = stack.driver
    if wanted and not states.is_pinned(stack.driver, str(wish["driver"])):
        kind = seen.flavour(wish, stack.card, wanted, tables)
        other = stack._replace(driver=wanted, flavour=kind, answers=False, fabric_manager="")
        against = judge(other, tables, rules)
        if refused(against):
            # The inventory itself cannot work, whatever the host has now.
            there = nearest.Right(stack, False, f"driver {loaded} (branch {versions.branch(loaded)}), which is loaded already")
            right = [there] if action == KEEP and loaded else nearest.nearest(_open_choice(other, wish), tables, rules)
            reasons, action, stack = against, REFUSED, other
        elif action in (INSTALL, UPGRADE):
            right = [nearest.Right(other, True, f"driver {wanted} ({kind} kernel modules), as the inventory wants it")]
        elif action == KEEP and loaded:
            reasons = [*reasons, _drift(stack.driver, str(wish["driver"]))]
    if not one.cards and stack.backend != "cpu":  # another finding says that there is no card of this kind
        action = REFUSED
    if state in states.FOREIGN and action in (INSTALL, UPGRADE, REPAIR):
        action = REFUSED
    return {
        "service": one.service,
        "action": action,
        "backend": stack.backend,
        "cards": f"{one.cards} x {stack.card.name or 'unknown'}" if one.cards else "-",
        **{key: getattr(stack, key) for key in ("driver", "flavour", "torch", "cuda", "vllm", "python", "glibc", "dtk")},
        "loaded": loaded,
        "environment": one.place,
        "installed": one.installed,
        "reasons": [reason._asdict() for reason in [*reasons, *_unknown(stack)]],
        "right": [_right(entry, system, tables) for entry in right],
    }


def _open_choice(stack: Stack, wish: Mapping[str, Any]) -> Stack:
    """The same set with the kind of modules left open, unless the inventory names one: a new driver can have another kind."""
    named = str(wish.get("flavour") or "auto")
    return stack._replace(flavour="" if named == "auto" else named)


def _by_rules(stack: Stack, reasons: List[Reason], rules: Tuple[Rule, ...], tables: Tables) -> Tuple[str, List[nearest.Right]]:
    """Of cards whose driver has no states here."""
    if not refused(reasons):
        return KEEP, []
    right = nearest.of_dcu(stack, tables, rules) if stack.backend == "hygon" else []
    return (UPGRADE if right else REFUSED), right


def _by_state(
    state: str, stack: Stack, reasons: List[Reason], rules: Tuple[Rule, ...], tables: Tables
) -> Tuple[str, List[nearest.Right]]:
    """What to do about an NVIDIA driver in this state."""
    if state == states.ABSENT:
        right = [found for found in nearest.nearest(stack, tables, rules) if found.needs_root]
        return (INSTALL if right else REFUSED), right
    if state in states.TO_REPAIR:
        return REPAIR, nearest.nearest(stack, tables, rules) if refused(reasons) else []
    if not refused(reasons):
        return KEEP, []
    at_fault = {reason.rule for reason in reasons if reason.severity == REFUSE}
    if at_fault <= OWN_REMEDY:  # nothing else needs to be installed: the reason says what to put right
        return REPAIR, []
    right = nearest.nearest(stack, tables, rules)
    return (UPGRADE if right else REFUSED), right


def _drift(found: str, wanted: str) -> Reason:
    what = f"driver {found} is loaded, the inventory wants {wanted}; what is there works, so it stays"
    return Reason("driver-drift", "note", what, f"correct modelyard_stack.driver, or plan the change to {wanted}")


def _unknown(stack: Stack) -> List[Reason]:
    """A card that no table has cannot be judged, and nobody should take that for a yes."""
    card = stack.card
    if stack.backend not in ("nvidia", "hygon") or not card.name or card.generation or card.arch:
        return []
    what = f"the {card.name} stands in no table of this version: whether driver and wheels have code for it was not judged"
    return [Reason("card-unknown", "note", what, "let the tensor test compute on it (preflight.yml --tags card_test)")]


def _right(right: nearest.Right, system: Mapping[str, Any], tables: Tables) -> Dict[str, Any]:
    stack = right.stack
    packages = known.packages(tables, system, stack.flavour, stack.driver) if right.needs_root else None
    return {
        "words": right.words,
        "needs_root": right.needs_root,
        **{key: getattr(stack, key) for key in ("driver", "flavour", "torch", "cuda", "vllm")},
        "branch": versions.branch(stack.driver),
        "packages": packages,
    }


def _before(system: Mapping[str, Any]) -> List[str]:
    """What an admin should know before changing the driver."""
    found = []
    coming: Mapping[str, Any] = next((k for k in system.get("kernels", ()) if k["next"]), {})
    if system.get("reboot_required") or (coming and not coming["running"]):
        newer = f" (kernel {coming['release']} is installed and not running)" if coming and not coming["running"] else ""
        found.append(f"a reboot is pending already{newer}: reboot first, then change the driver")
    room = system.get("boot_free_mib")
    if room is not None and room < BOOT_MIB:
        found.append(f"/boot has {room} MiB free; a new initramfs may need {BOOT_MIB}: remove old kernels first")
    if system.get("secure_boot"):
        found.append("Secure Boot is on: take modules that the distribution signs")
    return found
