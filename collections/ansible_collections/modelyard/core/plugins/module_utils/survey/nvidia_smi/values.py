"""Single values as nvidia-smi prints them: numbers, units, bus ids, and the texts that stand where a value should be."""

from __future__ import annotations

import re
from typing import Dict, Iterator, Match, Optional, Tuple

#: Texts that say "no value" and nothing else (lower case, without brackets).
NO_VALUE = frozenset(
    {
        "",
        "-",
        "n/a",
        "not supported",
        "not found",
        "requested functionality has been deprecated",
    }
)
#: Texts that say that something is wrong, and the kind of error they stand for.
#: `GPU is lost` is what newer drivers print in each field of a card that went away after it had been listed.
COMPLAINTS: Dict[str, str] = {
    "insufficient permissions": "insufficient_permissions",
    "unknown error": "field_error",
    "err!": "field_error",
    "gpu requires reset": "needs_reset",
    "gpu is lost": "gpu_lost",
}
#: Longer texts are no number; the limit also keeps the patterns below from working on a whole log.
NUMBER_LIMIT = 40
DIGITS_LIMIT = 18

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_PLAIN = re.compile(r"[0-9]+")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[.,'\u2019 \u00a0\u202f][0-9]{3})+")
_DECIMAL = re.compile(r"([0-9]+)[.,][0-9]+")
_QUANTITY = re.compile(r"([0-9](?:[0-9.,'\u2019 \u00a0\u202f]*[0-9])?)\s*([A-Za-z%]*)")
_SIGNED = re.compile(r"-?[0-9]")
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_BUS_ID = re.compile(r"(?<![0-9A-Fa-f])([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?(?![0-9A-Fa-f])")
#: MiB in one unit. `MB` is what drivers before 331 wrote for MiB.
_MIB: Dict[str, float] = {"": 1, "mib": 1, "mb": 1, "kib": 1 / 1024, "gib": 1024, "tib": 1024 * 1024}


def clean(text: str) -> str:
    """The text without what a terminal, a Windows host or an editor put around it: BOM, colours, NUL, carriage returns."""
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def bare(text: str) -> str:
    """The text without spaces and one pair of square brackets around it: `[N/A]` and `N/A` mean the same."""
    text = text.strip()
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        text = text[1:-1].strip()
    return text


def complaint(text: str) -> Optional[str]:
    """The kind of error that a text in place of a value stands for, or None."""
    return COMPLAINTS.get(bare(text).lower().rstrip("."))


def is_no_value(text: str) -> bool:
    """Whether the text stands where a value should be: it says so, complains, or is another text in brackets."""
    inner = bare(text)
    return inner.lower().rstrip(".") in NO_VALUE or inner != text.strip() or complaint(inner) is not None


def word(text: str) -> Optional[str]:
    """A value that is a text (name, UUID, mode) as printed, or None where no value is printed."""
    return None if is_no_value(text) else text.strip()


def process_name(text: str) -> Optional[str]:
    """The name of a process; None for the texts printed when it cannot be looked up.

    Unlike other values a process may rightly be called `[something]`.
    """
    inner = bare(text).lower()
    if (inner in NO_VALUE and inner != "-") or inner in COMPLAINTS:
        return None
    return text.strip()


def whole(text: str) -> Optional[int]:
    """A bare whole number (index, pid), or None."""
    text = text.strip()
    if len(text) > DIGITS_LIMIT or not _PLAIN.fullmatch(text):
        return None
    return int(text)


def mib(text: str) -> Optional[int]:
    """Memory in MiB, with or without unit; digits may be grouped. None for anything else, also for an unknown unit."""
    found = _quantity(text)
    if found is None:
        return None
    factor = _MIB.get(found.group(2).lower())
    number = _number(found.group(1), grouped=True)
    if factor is None or number is None:
        return None
    return int(number * factor)


def percent(text: str) -> Optional[int]:
    """A percentage with or without its sign, cut to whole percent; None for anything else."""
    found = _quantity(text)
    if found is None or found.group(2) not in ("", "%"):
        return None
    return _number(found.group(1), grouped=False)


def is_number(text: str) -> bool:
    """Whether a number is printed, with whatever unit."""
    return _SIGNED.match(text.strip()) is not None


def is_quantity(text: str) -> bool:
    """Whether the whole text is a number with or without a unit."""
    return _quantity(text.strip().lstrip("-")) is not None


def version(text: str) -> Optional[str]:
    """A driver version of two or three parts as printed, or None (newer drivers print `Deprecated, see ...` in its place)."""
    text = text.strip()
    return text if _VERSION.fullmatch(text) else None


def compute_capability(text: str) -> Optional[str]:
    """A compute capability such as `8.0` as printed, or None."""
    text = text.strip()
    return text if _CAPABILITY.fullmatch(text) else None


def mig_mode(text: str) -> Optional[str]:
    """`Enabled` or `Disabled`, else None. Tables mark a mode that will change at the next reset with a star."""
    text = text.strip().rstrip("*").strip().capitalize()
    return text if text in ("Enabled", "Disabled") else None


def bus_id(text: str) -> Optional[str]:
    """The first PCI bus id in the text in the form `00000000:0C:00.0`, or None. Function 0 is assumed where none is printed."""
    return next(bus_ids(text), None)


def bus_ids(text: str) -> Iterator[str]:
    """All PCI bus ids of the text, in order, in the form `00000000:0C:00.0`."""
    for found in _BUS_ID.finditer(text):
        yield _normal(found)


def split_at_bus_id(text: str) -> Tuple[str, Optional[str], str]:
    """Text before the first bus id, the id in its normal form, text after it; without an id: the text, None, empty."""
    found = _BUS_ID.search(text)
    if found is None:
        return text, None, ""
    return text[: found.start()], _normal(found), text[found.end() :]


def _normal(found: Match[str]) -> str:
    domain, bus, device, function = found.groups()
    return f"{domain.zfill(8)}:{bus}:{device}.{function or '0'}".upper()


def _quantity(text: str) -> Optional[Match[str]]:
    text = text.strip()
    return _QUANTITY.fullmatch(text) if len(text) <= NUMBER_LIMIT else None


def _number(text: str, grouped: bool) -> Optional[int]:
    """Digits, grouped digits (where allowed) or a decimal fraction, cut to the whole number below."""
    if grouped and _GROUPED.fullmatch(text):
        text = re.sub(r"[^0-9]", "", text)
    else:
        decimal = _DECIMAL.fullmatch(text)
        text = decimal.group(1) if decimal else text
    return whole(text)
