"""What a caller asked nvidia-smi for. Text can be anything; this has to be right."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

FORMATS = (
    "query_gpu_csv",
    "compute_apps_csv",
    "xml",
    "list_gpus",
    "table",
    "topo",
    "gpu_reset",
    "kernel_log",
    "message",
)
CSV_FORMATS = ("query_gpu_csv", "compute_apps_csv")


class ReaderError(ValueError):
    """The request is unusable: unknown format, or a CSV without its fields. Never raised because of the text that was read."""


class Request(NamedTuple):
    """A checked request. `fields`, `header` and `units` mean something for CSV only."""

    format: str
    fields: Tuple[str, ...]
    header: bool
    units: bool


def check(request: Any) -> Request:
    """The request in its checked form.

    :raises ReaderError: with what was found and what would be right.
    """
    if not isinstance(request, dict):
        raise ReaderError(f"the request must be a dict with the key format, not {type(request).__name__}")
    wanted = request.get("format")
    if not isinstance(wanted, str) or wanted not in FORMATS:
        raise ReaderError(f"unknown format {wanted!r}; known are: {', '.join(FORMATS)}")
    return Request(
        format=str(wanted),
        fields=_fields(request.get("fields"), wanted) if wanted in CSV_FORMATS else (),
        header=_switch(request, "header"),
        units=_switch(request, "units"),
    )


def _fields(fields: Any, wanted: str) -> Tuple[str, ...]:
    if not isinstance(fields, (list, tuple)) or not fields:
        raise ReaderError(f"format {wanted} needs the key fields: the list of fields asked for, in their order")
    for field in fields:
        if not isinstance(field, str) or not field.strip():
            raise ReaderError(f"fields must be names such as uuid or memory.used, not {field!r}")
    return tuple(str(field).strip().lower() for field in fields)


def _switch(request: Any, key: str) -> bool:
    """nvidia-smi prints header and units unless told otherwise."""
    value = request.get(key)
    if value is None:
        return True
    if not isinstance(value, bool):
        raise ReaderError(f"{key} must be true or false, not {value!r}")
    return value
