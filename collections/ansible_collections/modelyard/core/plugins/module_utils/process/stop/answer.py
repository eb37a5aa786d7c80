"""What a stop answers: why it is not over, in words for people."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import cards, look

Result = Dict[str, Any]


def refusal(service: str, words: str) -> Result:
    """A result of a stop that was not begun."""
    empty: Result = {key: [] for key in ("actions", "found", "left", "suspects", "cards", "others")}
    return {**empty, "changed": False, "needs_admin": "", "failed": True, "stopped": False, "msg": f"{service}: {words}"}


def fail(result: Result, words: str) -> None:
    """Make it the result of a stop that is not over."""
    result.update(failed=True, msg=words)


def why(
    left: Sequence[Mapping[str, Any]], signalled: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]]
) -> List[str]:
    """What only a person can solve: processes that are left, and, when there is none, what the cards say."""
    told = {(sent["pid"], sent["start"]) for sent in signalled}
    said = []
    for p in left:
        reason = "did not end when killed" if (p["pid"], p["start"]) in told else "is still there"
        half = ", its first thread has ended and another lives on" if p["state"] == "Z" else ""
        said.append(f"{p['pid']} {p['comm']} (state {p['state']}{half}, user {p['user']}) {reason}")
    if not left:
        said += [f"{v['card']}: {v['what']}" for v in verdicts if v["verdict"] in (cards.HELD, cards.SILENT)]
    return said


def of_zombie(process: proc.Process) -> str:
    """About a process that has ended, and whose parent has not read how."""
    parent = proc.read(process.ppid)
    who = f"its parent {process.ppid} ({parent.comm if parent else 'gone'})"
    more = ", which does not read the ends of orphans here; harmless" if process.ppid == 1 else " to reap it"
    return f"{process.pid} has ended and waits for {who}{more}; it holds nothing"


def doubtful(watch: look.Watch) -> str:
    """Why "nothing is left" cannot be said although nothing proven is.

    A process in the session that the service was started in comes from it, whatever else it hides: it may have become another
    user, or have gone into a container. Where a state cannot be read nobody knows the session, and the marker has to do.
    """
    unreadable = [index for index in layout.unreadable(watch.home, watch.service) if index in watch.indexes]
    from_it = [watch.describe(found) for found in watch.suspects.values() if {"session", "recorded"} & found.signs]
    if from_it:
        pids = ", ".join(f"{p['pid']} {p['command']} of {p['user']} ({', '.join(p['signs'])})" for p in from_it)
        return (
            f"{watch.service}: what was started with it is still there, and is not proven to be its own: {pids}. It was left "
            "alone: look at it, and end it yourself if it is."
        )
    found = [watch.describe(found) for found in watch.suspects.values() if "marker" in found.signs]
    if not unreadable or not found:
        return ""
    pids = ", ".join(f"{p['pid']} {p['command']} ({', '.join(p['signs'])})" for p in found)
    return (
        f"state.json of instance {', '.join(map(str, unreadable))} of {watch.service} cannot be read, and these may be "
        f"its processes: {pids}. They were left alone: look at them, and end them yourself if they are."
    )
