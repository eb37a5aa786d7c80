"""The answer in words for people, with secrets taken out. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.judge.redact import redact

#: A line of a log can be very long; what decides stands at its beginning.
WIDTH = 400


def redacted(answer: Mapping[str, Any], known: Iterable[str] = ()) -> Dict[str, Any]:
    """The same answer without secrets in its lines."""
    known = list(known)
    also = [{**one, "evidence": [redact(line, known) for line in one["evidence"]]} for one in answer["also"]]
    return {**answer, "evidence": [redact(line, known) for line in answer["evidence"]], "also": also}


def words(answer: Mapping[str, Any]) -> str:
    """What failed first, by which lines, what to do, and what only follows."""
    lines = [f"Layer: {answer['layer'] or 'none is shown'}", f"Cause: {answer['cause']}: {answer['meaning']}"]
    if answer.get("first_in"):
        lines.append(f"Where: {answer['first_in']}")
    lines.append(_seen(answer))
    lines += [f"Note: {note}" for note in answer["notes"]]
    if answer["evidence"]:
        lines += ["", "Lines that decide:", *(f"  {_short(line)}" for line in answer["evidence"])]
    lines += ["", "Next:", *(f"  {number}. {step}" for number, step in enumerate(answer["next_steps"], 1))]
    for follows, head in ((True, "What only follows:"), (False, "Also in this log, to be looked at by itself:")):
        found = [one for one in answer["also"] if one["follows"] is follows]
        if found:
            lines += ["", head, *(f"  {one['cause']}: {_short(one['evidence'][0])}" for one in found)]
    return "\n".join(lines)


def _seen(answer: Mapping[str, Any]) -> str:
    if answer["cause"] == "nothing_found":
        return "Root cause: nothing in this text tells of a failure"
    if answer["root_cause_visible"]:
        return "Root cause: shown by the lines below"
    return "Root cause: not in this text; the lines below are a symptom of it"


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= WIDTH else f"{line[:WIDTH]} ..."


def report(host: str, seen: Mapping[str, Any], starts: int) -> str:
    """One service of a host, for people: its last starts, what is left of it, and the kernel's log."""
    lines = [f"{host}: {seen['service']}", "=" * len(f"{host}: {seen['service']}")]
    for instance in dict.fromkeys(start["instance"] for start in seen["starts"]):
        own = [start for start in seen["starts"] if start["instance"] == instance]
        for start in own[:starts]:
            state = "runs" if start["running"] else "has ended"
            lines += [
                "",
                f"Instance {instance}, {start['log']} ({state})",
                words(start["answer"]),
                f"A restart is {start['restart']}.",
            ]
        if own[starts:]:
            older = ", ".join(dict.fromkeys(start["answer"]["cause"] for start in own[starts:]))
            lines.append(f"{len(own) - starts} older starts: {older}")
    if not seen["starts"]:
        lines += ["", "No log of a start is here."]
    lines += ["", _left(seen)]
    if seen["kernel"]["cause"] != "nothing_found":
        lines += ["", "The kernel's log by itself; look at the times of its lines:", words(seen["kernel"])]
    lines += [f"Could not be looked at: {problem}" for problem in seen["problems"]]
    return "\n".join(lines)


def _left(seen: Mapping[str, Any]) -> str:
    if not seen["left"]:
        return "Nothing of an old start is alive." if seen["starts"] else "No process of this service is alive."
    table = "\n".join(f"  {one['pid']} (parent {one['ppid']}, state {one['state']}) {one['comm']}" for one in seen["processes"])
    stuck = f"\n{words(seen['now'])}" if seen["now"]["cause"] != "nothing_found" else ""
    return f"Not clean: no instance runs, and these processes of it are alive. Use the guarded teardown:\n{table}{stuck}"
