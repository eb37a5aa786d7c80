"""Reader for the lines that the NVIDIA driver writes into the kernel log."""

from __future__ import annotations

import re
from typing import List, Optional, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record

#: `Xid (PCI:0000:9b:00): 119, pid=..., name=..., text`. NVSwitch lines (`SXid`) are not about a GPU.
_XID = re.compile(r"(?<![A-Za-z])Xid\s*\(([^()]*)\)\s*:\s*([0-9]{1,6})(?![0-9])(.*)")
_TO = re.compile(r"\bto\s+")
_IN_PARENTHESES = re.compile(r"\(([^()]*)\)")
_RESET_FLAG = re.compile(r"\bRST:\s*Yes\b", re.IGNORECASE)
_REBOOT = re.compile(r"\breboot to activate\b", re.IGNORECASE)
_LOST = re.compile(r"\bfallen\s+off\s+the\s+bus\b", re.IGNORECASE)
#: Longer than the sentence that is looked for; what is older than this has nothing to do with the line.
TAIL_LENGTH = 24


def read(text: str) -> Record:
    """One event per Xid line, and errors from plain statements only: no Xid number is an error by itself."""
    events: List[Record] = []
    errors: List[Record] = []
    said: List[str] = []
    last_bus_id: Optional[str] = None
    stated: Set[Tuple[str, Optional[str]]] = set()
    tail = ""
    for line in text.split("\n"):
        message = _message(line)
        if message is None:
            said.append(line)
            continue
        event, rest = _event(message)
        if event is not None:
            events.append(event)
        number = event["xid"] if event is not None else None
        own = event["bus_id"] if event is not None else None
        for kind, bus_id in _statements(message, rest, number, tail, own, last_bus_id):
            if (kind, bus_id) not in stated:
                stated.add((kind, bus_id))
                errors.append(records.error(kind, bus_id, detail=None if number is None else f"xid {number}"))
        for found in values.bus_ids(message):
            last_bus_id = found
        tail = f"{tail} {message}"[-TAIL_LENGTH:]
    return {**records.reading(messages.read_messages(said) + errors), "kernel_events": events}


def _message(line: str) -> Optional[str]:
    """What the driver says in a line, without time, host and prefix; None for lines of others."""
    _, mark, message = line.partition("NVRM:")
    if mark:
        return message.strip()
    # Without its prefix a line is the driver's only if it says what nobody else says.
    is_ours = _XID.search(line) or (_LOST.search(line) and ("GPU" in line or "nvidia" in line))
    return line.strip() if is_ours else None


def _event(message: str) -> Tuple[Optional[Record], str]:
    """The event of an Xid line and the text after its number."""
    found = _XID.search(message)
    if found is None:
        return None, message
    rest = found.group(3)
    pid: Optional[int] = None
    name: Optional[str] = None
    for part in rest.split(", "):
        key, sign, value = part.strip(" ,").partition("=")
        if sign and key == "pid" and pid is None:
            pid = values.whole(_unquoted(value))
        elif sign and key == "name" and name is None:
            name = _unquoted(value) or None
    event = {"bus_id": values.bus_id(found.group(1)), "xid": int(found.group(2)), "pid": pid, "process": name}
    return event, rest


def _unquoted(value: str) -> str:
    """The value without quotes; empty for `<unknown>`."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1].strip()
    return "" if value.lower() == "<unknown>" else value


def _statements(
    message: str, rest: str, number: Optional[int], tail: str, own: Optional[str], before: Optional[str]
) -> List[Tuple[str, Optional[str]]]:
    """Kinds of error that a line states, with the bus id: that of the Xid, else the one in the line, else the last before."""
    found: List[Tuple[str, Optional[str]]] = []
    here = own or values.bus_id(message)
    lost = _LOST.search(message)
    if lost:
        named = list(values.bus_ids(message[: lost.start()]))
        found.append(("gpu_lost", own or (named[-1] if named else before or here)))
    elif _crosses(tail, message):
        found.append(("gpu_lost", before or here))
    is_recovery = number == 154 and _asks_for_action(rest)
    if is_recovery or _RESET_FLAG.search(message) or _REBOOT.search(message):
        found.append(("needs_reset", here or before))
    return found


def _crosses(tail: str, message: str) -> bool:
    """Whether the sentence begins at the end of the line before and ends in this one."""
    both = _LOST.search(f"{tail} {message[:TAIL_LENGTH]}")
    return both is not None and both.start() < len(tail) < both.end()


def _asks_for_action(text: str) -> bool:
    """Whether a recovery action changed to another one than `None`."""
    _, _, change = text.lower().partition("recovery action changed from")
    found = _TO.search(change)
    if found is None:
        return False
    target = change[found.end() :]
    named = _IN_PARENTHESES.search(target)
    action = (named.group(1) if named else target).strip(" .")
    return action not in ("", "none", "0x0")
