"""Reader for `nvidia-smi --gpu-reset`."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record

#: What a verdict contains (lower case), whether the card was reset, and why not.
VERDICTS: Tuple[Tuple[str, bool, Optional[str]], ...] = (
    ("successfully reset", True, None),
    ("in use by another client", False, "in_use"),
    ("in use by another process", False, "in_use"),
    ("not supported", False, "not_supported"),
    ("is the primary gpu", False, "primary_gpu"),
)
#: Verdicts without a name: refused all the same.
OTHER_REFUSAL = re.compile(r"unable to reset|could not be reset|couldn.?t be reset|failed|\berror\b", re.IGNORECASE)


def read(text: str) -> Record:
    """One entry per line with a bus id and a verdict. Sums and advice give nothing."""
    resets: List[Record] = []
    errors: List[Record] = []
    said: List[str] = []
    for line in text.split("\n"):
        head, bus_id, rest = values.split_at_bus_id(line)
        if bus_id is None or messages.read_line(line):
            said.append(line)
            continue
        entry, kind = _verdict(bus_id, head, rest)
        if entry is not None:
            resets.append(entry)
        if kind is not None:
            errors.append(records.error(kind, bus_id, detail=None if kind.startswith("reset_") else rest.strip(" :.")))
    return {**records.reading(messages.read_messages(said) + errors), "resets": resets}


def _verdict(bus_id: str, head: str, rest: str) -> Tuple[Optional[Record], Optional[str]]:
    """The entry of a line and the kind of its error, each or both None."""
    whole = f"{head} {rest}".lower()
    for phrase, is_ok, reason in VERDICTS:
        if phrase in whole:
            return {"bus_id": bus_id, "ok": is_ok, "reason": reason}, f"reset_{reason}" if reason else None
    # A verdict that is none of these is the text of an error: `GPU 00000000:01:00.0: Insufficient Permissions`.
    kind = next((kind for phrase, kind in values.COMPLAINTS.items() if phrase in rest.lower()), None)
    if kind is None and not OTHER_REFUSAL.search(whole):
        return None, None
    return {"bus_id": bus_id, "ok": False, "reason": None}, None if kind == "field_error" else kind
