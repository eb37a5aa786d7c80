"""What a stop would do now, in order. Nothing is signalled, run or written."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import answer, cards, look, plan
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.account import Account


def preview(
    home: str, service: str, indexes: Optional[Collection[int]] = None, options: Optional[Mapping[str, Any]] = None
) -> Dict[str, Any]:
    """The result as the module guarded_stop returns it in check mode; arguments as of run.stop_service."""
    foreign = look.no_right(home, service)
    if foreign:
        return answer.refusal(service, foreign)
    stop = Account(home, service, indexes, options)
    groups = stop.watch.look()
    members = {m.pid for group in groups.values() for m in group}
    actions = _first_steps(stop)
    for after_s, step in plan.schedule(groups, stop.settings.limits):
        when = "" if after_s == 0 else f", if it is still there after {after_s:.0f} s"
        found = stop.watch.ours[identity.Recorded(step.pid, step.start)][1]
        shown = f" of {proc.user_name(found.process.uid)} ({', '.join(sorted(found.signs))})" if after_s == 0 else ""
        actions.append(f"would send {step.signal} to {step.pid} ({step.comm}){shown}: {step.why}{when}")
    others: List[Dict[str, Any]] = []
    if stop.place.watched:
        names = ", ".join(str(device.get("index")) for device in stop.place.devices)
        actions.append(f"would wait up to {stop.settings.memory_s:.0f} s until the memory of card {names} is back")
        table = stop.watch.table
        others = cards.describe(set(cards.holders(stop.place, table)) - members, table, stop.place)
    result = answer.refusal(service, "")
    result.update(failed=False, stopped=False, msg="", changed=bool(members), actions=actions, others=others)
    result["found"] = [stop.watch.describe(found) for found in stop.watch.living() + stop.watch.zombies()]
    result["suspects"] = [stop.watch.describe(found) for found in stop.watch.suspects.values()]
    return result


def _first_steps(stop: Account) -> List[str]:
    """What comes before the signals, in words."""
    if not stop.settings.release_supervisor or not stop.watch.ours:
        return []
    words = doors.would_leave(stop.home, stop.service, list(stop.serving()), stop.settings.drain_s)
    if stop.settings.drain_command:
        words.append(f"would run the drain command, {stop.settings.drain_s:.0f} s at most: {stop.settings.drain_command}")
    kinds = {str(state["request"].get("supervisor") or "plain") for state in stop.watch.states.values() if state}
    words += [f"would let {kind} start nothing again" for kind in sorted(kinds - {"plain", "screen"})]
    return words
