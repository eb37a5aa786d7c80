"""The nearest set that works: what to change when one does not, and who can change it.

Three ways, each with the least change: another driver (an admin), another vLLM with its torch (no root), or both. A set is only
named when the rules accept it.
"""

from __future__ import annotations

import itertools
from typing import Iterator, List, NamedTuple, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.known import Tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import Rule, Stack, judge, refused
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order


class Right(NamedTuple):
    """A set that the rules accept. `needs_root`: the driver changes. `words`: what to install."""

    stack: Stack
    needs_root: bool
    words: str


def nearest(stack: Stack, tables: Tables, rules: Tuple[Rule, ...]) -> List[Right]:
    """For an NVIDIA card: by another driver, and by another vLLM on this driver; where neither helps, both together.

    Empty where nothing in the tables helps: then the card is the wrong one.
    """
    # Only drivers that fit the card itself are worth a second look.
    drivers = [pair for pair in _drivers(stack, tables) if not refused(judge(_bare(pair[0]), tables, rules))]
    whole = ((changed, words) for changed, words in drivers if not refused(judge(changed, tables, rules)))
    found = [Right(changed, True, words) for changed, words in itertools.islice(whole, 1)]
    if stack.driver and (stack.vllm or stack.torch):
        found += _layer(stack, tables, rules, "")[:1]
    if found:
        return found
    for changed, words in drivers:
        found = _layer(changed, tables, rules, f"{words} and ")[:1]
        if found:
            return [found[0]._replace(needs_root=True)]
    return []


def of_dcu(stack: Stack, tables: Tables, rules: Tuple[Rule, ...]) -> List[Right]:
    """For a DCU: the vendor's wheels for the DTK that is there; where none are known, those of another DTK, with that DTK."""
    found: List[Right] = []
    for entry in tables["hygon"]["toolkits"][::-1]:
        # The layer and its Python are made anew; of several releases the newest comes last.
        fresh = stack._replace(
            torch=entry["torch"][-1], vllm=entry["vllm"][-1], variant="hip", cuda="", archs=(), transformers="", dtk_problem=""
        )
        candidate = fresh._replace(dtk=stack.dtk or entry["dtk"], python=entry["python"][-1])
        moved = candidate._replace(dtk=entry["dtk"])
        for changed, needs_root in ((candidate, False), (moved, True)):
            known_way = any(right.needs_root is needs_root for right in found)
            if not known_way and (not needs_root or changed.dtk != stack.dtk) and not judge(changed, tables, rules):
                toolkit = f"DTK {changed.dtk} and " if needs_root else ""
                wheels = " and ".join(
                    _wheel(*pair, changed.python) for pair in (("vllm", changed.vllm), ("torch", changed.torch))
                )
                found.append(Right(changed, needs_root, f"{toolkit}{wheels}"))
    return sorted(found, key=lambda right: right.needs_root)[:1]


def _wheel(name: str, version: str, python: str) -> str:
    """The vendor's file name, as far as it is known: later builds carry a stamp at the end of the version."""
    tag = "cp" + python.replace(".", "")
    return f"{name}-{version}-{tag}-{tag}-manylinux_2_28_x86_64.whl"


def _bare(stack: Stack) -> Stack:
    """Card and driver alone."""
    return stack._replace(
        torch="", cuda="", archs=(), variant="", vllm="", vllm_cuda="", transformers="", nccl="", glibc="", python=""
    )


def _drivers(stack: Stack, tables: Tables) -> Iterator[Tuple[Stack, str]]:
    """The set on other drivers: the recommended branch first, then the newest long-term one, then those that are still kept."""
    entries = list(tables["drivers"]["branches"])[::-1]
    first = [tables["drivers"]["recommended"][key] for key in ("branch", "newest_long_term")]
    living = [entry["branch"] for entry in entries if not entry.get("eol") or not stack.today or entry["eol"] >= stack.today]
    for branch in dict.fromkeys([*first, *living, *(entry["branch"] for entry in entries)]):
        entry = known.branch(tables, branch)
        if not entry:
            continue
        version = str(entry.get("last_seen") or branch)
        for flavour in dict.fromkeys([stack.flavour, *_flavours(stack)]):
            if flavour in entry["flavours"]:
                named = f"driver {version} (branch {branch}, {flavour} kernel modules)" if version != branch else ""
                words = named or f"a driver of the branch {branch} ({flavour} kernel modules)"
                # The fabric manager comes with the driver.
                fresh = stack._replace(answers=False, fabric_manager="", forward_compat="")
                yield fresh._replace(driver=version, flavour=flavour), words


def _flavours(stack: Stack) -> Tuple[str, ...]:
    if stack.card.open == "unsupported":
        return ("proprietary",)
    return ("open",) if stack.card.proprietary == "unsupported" else ("open", "proprietary")


def _layer(stack: Stack, tables: Tables, rules: Tuple[Rule, ...], before: str) -> List[Right]:
    """Releases of vLLM that work on the set's driver, the best first; on this Python where one does, else with another one.

    The release that is wanted, else the newest; the default wheel, and one published beside it only where it gives no warning.
    """
    for python in dict.fromkeys([stack.python, ""]):
        found = []
        for candidate, is_variant in _layers(stack._replace(python=python), tables):
            reasons = judge(candidate, tables, rules)
            if not refused(reasons):
                found.append((is_variant and bool(reasons), candidate))
        if found:
            ranked = [candidate for doubtful in (False, True) for is_doubtful, candidate in found if is_doubtful is doubtful]
            ranked.sort(key=lambda candidate: candidate.vllm != stack.vllm.partition("+")[0])
            return [Right(one, False, before + _words(one, tables, python != stack.python)) for one in ranked]
    return []


def _layers(stack: Stack, tables: Tables) -> Iterator[Tuple[Stack, bool]]:
    """(set, is it a build beside the default one), the newest release first."""
    for release in sorted(tables["pins"]["releases"], key=order, reverse=True):
        entry = tables["pins"]["releases"][release]
        torch = known.torch(tables, entry["torch"])
        if not torch:
            continue
        fresh = stack._replace(
            vllm=release, torch=entry["torch"], archs=(), transformers="", nccl="", variant="cuda", forward_compat=""
        )
        yield fresh._replace(cuda=torch["cuda"], vllm_cuda=entry["cuda"]), False
        for cuda in entry.get("variants", ()):
            if cuda in torch["builds"]:
                yield fresh._replace(vllm=f"{release}+cu{cuda.replace('.', '')}", cuda=cuda, vllm_cuda=cuda), True


def _words(stack: Stack, tables: Tables, other_python: bool) -> str:
    python = f" on Python {known.pins(tables, stack.vllm).get('python', '')}" if other_python else ""
    build = f" (torch+cu{stack.cuda.replace('.', '')})" if "+" in stack.vllm else ""
    return f"vLLM {stack.vllm} with torch {stack.torch} for CUDA {versions.minor(stack.cuda)}{build}{python}"
