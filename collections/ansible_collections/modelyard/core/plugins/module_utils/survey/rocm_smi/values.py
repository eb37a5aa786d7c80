"""Words on a screen become numbers, sizes and ids. What cannot be read is None, never 0: unknown is not idle."""

from __future__ import annotations

import re
from typing import Optional, Tuple

#: What the tools print where they have nothing to say.
NOTHING = frozenset(["", "n/a", "none", "null", "unsupported", "not supported", "-", "--"])
MIB = 1024 * 1024
#: AMD writes KB, MB and GB and means KiB, MiB and GiB, so one table does for all.
BYTES = {
    prefix + ending: 1024**power
    for power, prefix in enumerate(["", "k", "m", "g", "t"])
    for ending in (["b"] if not prefix else ["", "b", "ib"])
}
#: Units that may stand apart from their number in a row of a table.
OTHER_UNITS = "% w mw c v mv a rpm hz khz mhz ghz mb/s gb/s gt/s ns us ms"
UNITS = frozenset(BYTES) | frozenset(OTHER_UNITS.split())

_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*")
_PLAIN = re.compile(r"[+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?\Z")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]{1,20},[0-9]{1,20}\Z")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3}){1,6}(?:\.[0-9]{1,20})?\Z")
_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])(?![0-9a-f])")
_RATIO = re.compile(r"(N/A|[0-9][0-9.,]*)[ ]?/[ ]?(.*)", re.IGNORECASE)
_COUNT_OR_NOTHING = re.compile(r"(?:N/A|[+-]?[0-9][0-9.,]*)(?:/(?:N/A|[0-9][0-9.,]*))?\Z", re.IGNORECASE)


def word(text: str) -> Optional[str]:
    """`text` without blanks around it; None where the tool had nothing to say (`N/A`, `None`, `Unsupported`)."""
    stripped = text.strip()
    return None if stripped.lower() in NOTHING else stripped


def whole(text: str) -> Optional[int]:
    """A bare index, count or process id of up to nine digits; None for all else."""
    stripped = text.strip()
    return int(stripped) if _WHOLE.match(stripped) else None


def unit(text: str) -> str:
    """A unit in plain letters: `°C`, its broken encodings and `c` are all `c`."""
    return "".join(c for c in text.lower() if c in "abcdefghijklmnopqrstuvwxyz%/")


def is_unit(cell: str) -> bool:
    """Whether a cell is nothing but a unit (`%`, `MHz`, `°C`)."""
    return not any(c.isdigit() for c in cell) and unit(cell) in UNITS


def takes_unit(cell: str) -> bool:
    """Whether a unit may follow this cell: a number, `N/A`, or two of them with a slash (`135/750`)."""
    return _COUNT_OR_NOTHING.match(cell) is not None


def _number(text: str, grouped: bool) -> Optional[float]:
    """`grouped`: a comma before three digits parts thousands; otherwise every comma is a decimal one."""
    text = text.rstrip(".,")
    if _PLAIN.match(text):
        return float(text)
    if grouped and _THOUSANDS.match(text):
        return float(text.replace(",", ""))
    if _DECIMAL_COMMA.match(text):
        return float(text.replace(",", "."))
    return None


def quantity(text: str, grouped: bool = False) -> Optional[Tuple[float, str]]:
    """A number and its unit (see `unit`; empty when there is none). None when `text` is anything else."""
    text = text.strip()
    found = _NUMBER.match(text)
    if found is None:
        return None
    rest = text[found.end() :]
    value = _number(found.group(), grouped)
    if value is None or any(c.isdigit() for c in rest):
        return None
    return value, unit(rest)


def measure(text: str, of: str, signed: bool = False) -> Optional[float]:
    """A number that bears the unit `of` (`w`, `c`, `%`) or none. Below zero only when `signed`.

    The check of the unit keeps a power out of a percentage when the columns of a row have slipped.
    """
    found = quantity(text)
    if found is None or found[1] not in ("", of) or (found[0] < 0 and not signed):
        return None
    return found[0]


def mib(text: str, default: str) -> Optional[int]:
    """A size in MiB, rounded to the nearest. `default` is the unit of a bare number, in lower case; empty: not known."""
    found = quantity(text, grouped=True)
    if found is None or found[0] < 0:
        return None
    factor = BYTES.get(found[1] or default) if found[1] or default else None
    return None if factor is None else round(found[0] * factor / MIB)


def ratio(text: str) -> Tuple[str, str]:
    """The two sides of `285/196288 MB`, each with the unit at the end. Without two sides the second is empty."""
    found = _RATIO.match(text.strip())
    if found is None:
        return text, ""
    left, right = found.groups()
    total = quantity(right, grouped=True)
    return (f"{left} {total[1]}" if total and left[-1:].isdigit() else left), right


def bus_id(text: str) -> Optional[str]:
    """A PCI address as `dddd:bb:dd.f` in lower case, without what follows it; None when there is none at the start."""
    found = _PCI.match(text.strip().lower())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"
