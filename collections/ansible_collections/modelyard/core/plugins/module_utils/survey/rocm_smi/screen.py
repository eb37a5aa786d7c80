"""What a terminal showed becomes plain lines, and whether a banner was left without its end."""

from __future__ import annotations

import re
from typing import List, NamedTuple

# The last two forms are what is left of an escape when a page or a log has taken its first byte away.
_ESCAPE = re.compile(
    r"\x1b\[?[0-?]*[ -/]*[@-~]"
    r"|(?:\^\[|\\033|\\x1b|\\e|\u241b)\[?[0-9;]{0,12}[mKHJ]"
    r"|(?<!\S)\[[0-9;]{1,12}m"
)
_OPERATING_SYSTEM_COMMAND = re.compile(r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?")


#: The head of a line about one device, with its index: `HCU[0] :`, `DCU[0]`, `GPU[0]`.
LABEL = re.compile(r"\s*(?:[DH]CU|GPU)\s*\[\s*([0-9]{1,9})\s*\]\s*:", re.IGNORECASE)


class Page(NamedTuple):
    """`lines` without escapes, and `truncated`: a banner was printed and no end came after it."""

    lines: List[str]
    truncated: bool


def is_banner(line: str) -> bool:
    """The rule line that opens an output. Help texts name the tool too, but draw no rule."""
    return "system management interface" in line.lower() and "=" in line


def is_end(line: str) -> bool:
    """The rule line that closes an output: `End of SMI Log`, `End of ROCm SMI Log`."""
    lowered = line.lower()
    return "end of" in lowered and "smi log" in lowered.split("end of", 1)[1]


def is_title(line: str) -> bool:
    """A rule with words in it: the head of a section, the banner or the end."""
    stripped = line.strip()
    return stripped.startswith("==") and any(c.isalpha() for c in stripped)


def page(text: str) -> Page:
    """Any text, as lines. Nothing is lost but escapes, byte order marks, and the last value of a cut output (see below)."""
    text = _OPERATING_SYSTEM_COMMAND.sub("", text)
    text = _ESCAPE.sub("", text).replace("\ufeff", "").replace("\x00", "")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    banner, end = -1, -1
    for number, line in enumerate(lines):
        banner = number if is_banner(line) else banner
        end = number if is_end(line) else end
    truncated = banner > end
    if truncated:
        lines[-1] = _without_cut_value(lines[-1])
    return Page(lines, truncated)


def _without_cut_value(line: str) -> str:
    """The last line of a cut output, without what may be the beginning of something longer (`655` of `65520`).

    A label keeps naming its device (`HCU[3] :`), other keys go. A row of a table is kept if its last word ends in `%` or has
    no digit: no reading changes with the rest of that one.
    """
    label = LABEL.match(line)
    if label:
        return label.group()
    stripped = line.strip()
    if not stripped or stripped.endswith("):"):
        return line
    if ":" in stripped and not stripped[0].isdigit():
        return ""
    last = stripped.split()[-1]
    if line[-1].isspace() or last.endswith("%") or not any(c.isdigit() for c in last):
        return line
    return line[: len(line) - len(last)]
