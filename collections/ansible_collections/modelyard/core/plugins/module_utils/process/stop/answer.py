"""What a stop answers: its result, and why it is not over, in words for people."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin, admin_facts, after, cards, look, signals
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.account import Account

Result = Dict[str, Any]


def of(stop: Account) -> Result:
    """The result of a stop that was carried out, as the module guarded_stop returns it."""
    left = [stop.watch.describe(found) for found in stop.watch.living()]
    for zombie in stop.watch.zombies():
        stop.say(of_zombie(zombie.process))
    ended = len({(s["pid"], s["start"]) for s in stop.signalled})
    stop.say(
        f"checked: {len(stop.found)} process(es) found, {ended} signalled, {len(left)} left; "
        f"{after.ports(stop.watch.states)}; {len(stop.removed)} shared-memory segment(s) removed"
    )
    result: Result = {
        "changed": bool(stop.signalled or stop.removed or stop.did),
        "found": stop.found,
        "left": left,
        "suspects": [stop.watch.describe(found) for found in stop.watch.suspects.values()],
        "cards": stop.verdicts,
        "others": stop.others,
        "needs_admin": "",
        "failed": False,
        "msg": "",
    }
    _judge(stop, result)
    result["actions"] = [words for _, words in stop.actions]
    result["stopped"] = not result["failed"]
    result["seconds"] = round(stop.seconds, 2)
    return result


def _judge(stop: Account, result: Result) -> None:
    reasons = why(result["left"], stop.signalled, stop.verdicts)
    uncertain = doubtful(stop.watch)
    left = {identity.Recorded(p["pid"], p["start"]) for p in result["left"]}
    denied = {known: comm for known, comm in stop.denied.items() if known in left}
    if denied:
        who = ", ".join(f"{known.pid} ({comm})" for known, comm in denied.items())
        fail(result, f"{stop.service}: this user may not signal {who}. Run it as the user of the service, or as root.")
    elif reasons and stop.settings.only_signals:
        fail(result, f"{stop.service}: {'; '.join(reasons)}")
    elif reasons:
        fail(result, f"{stop.service} needs an admin: {'; '.join(reasons)}. {_hand_over(stop, reasons, result)}")
    elif stop.problems:
        fail(result, f"{stop.service}: {'; '.join(stop.problems)}. All its processes are gone now; look again.")
    elif uncertain:
        fail(result, uncertain)
    elif not stop.settings.only_signals and after.clear_admin(stop.home, stop.service, stop.verdicts):
        result["changed"] = True
        stop.say(after.CLEARED)


def _hand_over(stop: Account, reasons: Sequence[str], result: Result) -> str:
    facts = admin_facts.gather(stop.watch, stop.place, reasons, stop.verdicts, stop.others, stop.actions)
    with signals.held_back():  # a report that is cut off would say less than is known, and the next stop would write another one
        folder, problems = admin.write(stop.home, stop.service, facts)
    result.update(needs_admin=folder, changed=True, report=admin.text(facts), report_written=not problems)
    if problems:
        return f"The report could not be written whole ({'; '.join(sorted(set(problems)))}); it is part of this result."
    return f"The report with the choices: {folder}/report.txt. Nothing else was touched."


def refusal(service: str, words: str) -> Result:
    """A result of a stop that was not begun."""
    empty: Result = {key: [] for key in ("actions", "found", "left", "suspects", "cards", "others")}
    more = {"changed": False, "needs_admin": "", "failed": True, "stopped": False, "seconds": 0.0}
    return {**empty, **more, "msg": f"{service}: {words}"}


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


def of_other(other: Mapping[str, Any], service: str) -> str:
    """About a process that is on the cards and is not of the instances that were stopped."""
    whose = " of another instance of this service" if other["marker"] == service else ""
    files = ", ".join(other["devices"] or [])
    more = "".join(f", {key} {other[key]}" for key in ("unit", "container") if other[key])
    more += f" has {files} open" if files else " is on these cards"
    return f"left alone{whose}: pid {other['pid']} of user {other['user']} ({other['command'][:120]}){more}"


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
