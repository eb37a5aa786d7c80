"""Reader for what nvidia-smi and the NVIDIA lines of the kernel log print: text in, plain data out. Runs nothing itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.request import ReaderError, check

if TYPE_CHECKING:  # never true, but Ansible sends along what it finds here: a look at a host loads one of them only
    from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import (  # noqa: F401
        compute_apps,
        kernel_log,
        list_gpus,
        query_gpu,
        reset,
        table,
        topo,
        xml_log,
    )

__all__ = ["ReaderError", "read_nvidia_smi"]

#: The file here that reads a format; those of CSV are told what was asked for.
READERS = {
    "query_gpu_csv": "query_gpu",
    "compute_apps_csv": "compute_apps",
    "xml": "xml_log",
    "list_gpus": "list_gpus",
    "table": "table",
    "topo": "topo",
    "gpu_reset": "reset",
    "kernel_log": "kernel_log",
    "message": "table",
}


def read_nvidia_smi(text: str, request: Dict[str, Any]) -> Dict[str, Any]:
    """What a text of nvidia-smi (or of the kernel log) says, as plain data.

    :param text: what the program printed, of any driver and however damaged.
    :param request: what it was asked for. `format` is one of query_gpu_csv, compute_apps_csv, xml, list_gpus, table, topo,
        gpu_reset, kernel_log, message. The CSV formats need `fields`, the fields asked for in their order, and take
        `header` and `units` (both true unless noheader or nounits was asked for).
    :returns: always `gpus`, `processes`, `process_list` and `errors`; `mig_devices` when there are any; `topology`, `resets`
        or `kernel_events` for the formats of that name. Memory is in MiB, utilisation in percent, all numbers are integers,
        and null is what the text does not give. tests/fixtures/nvidia/README.md describes every key.
    :raises ReaderError: the request is unusable. The text never raises anything: what cannot be read is left out, and
        `errors` or `process_list` tell of it.
    """
    if not isinstance(text, str):
        raise ReaderError(f"the output to read must be text, not {type(text).__name__}")
    checked = check(request)
    cleaned = values.clean(str(text))
    reader = importlib.import_module(f"{__name__}.{READERS[checked.format]}")
    answer: Dict[str, Any] = reader.read(cleaned, checked) if checked.format.endswith("_csv") else reader.read(cleaned)
    return answer
