"""Filter: text of nvidia-smi -> its GPUs (thin wrapper around the reader)."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import ReaderError, read_nvidia_smi
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: nvidia_smi_gpus
short_description: GPUs in the output of nvidia-smi
description:
  - Reads what C(nvidia-smi) printed, of drivers 384 to 610, and gives one record for each GPU that answered.
  - What is not printed, or printed as C(N/A) and the like, is null and never 0.
  - An error message in place of the output gives an empty list. Check the exit code of the command too.
options:
  _input: {description: Standard output of the command., type: str, required: true}
  fields:
    description: The fields asked for, in their order. Needed for O(format=query_gpu_csv).
    type: list
    elements: str
  format:
    description: What was asked for.
    type: str
    choices: [query_gpu_csv, xml, list_gpus, table]
    default: query_gpu_csv
  header: {description: False if C(noheader) was asked for., type: bool, default: true}
  units: {description: False if C(nounits) was asked for., type: bool, default: true}
"""
EXAMPLES = r"""
- name: Ask for the cards
  ansible.builtin.command:
    argv: [nvidia-smi, "--query-gpu=index,uuid,name,memory.used,memory.total,utilization.gpu", "--format=csv"]
  register: smi
  changed_when: false
  check_mode: false

- name: Show the cards on which at most 4 MiB are used
  ansible.builtin.debug:
    msg: "{{ cards | rejectattr('memory_used_mib', 'none') | selectattr('memory_used_mib', 'le', 4) | map(attribute='uuid') }}"
  vars:
    fields: [index, uuid, name, memory.used, memory.total, utilization.gpu]
    cards: "{{ smi.stdout | nvidia_smi_gpus(fields=fields) }}"

- name: Show the cards of nvidia-smi -q -x
  ansible.builtin.debug:
    msg: "{{ log.stdout | nvidia_smi_gpus(format='xml') }}"
"""
RETURN = r"""
_value:
  description:
    - One record for each GPU, in the order of the output.
    - >-
      Keys: C(index), C(uuid), C(name), C(bus_id), C(minor_number), C(memory_total_mib), C(memory_used_mib),
      C(utilization_gpu_pct), C(compute_mode), C(mig_mode), C(driver_version), C(compute_cap), C(health).
    - C(health) is one of C(ok), C(unknown), C(degraded), C(error), C(needs_reset).
  type: list
  elements: dict
"""
#: Formats that list GPUs. The reader knows more.
FORMATS = ("query_gpu_csv", "xml", "list_gpus", "table")


def nvidia_smi_gpus(
    text: str,
    fields: list[str] | None = None,
    format: str = "query_gpu_csv",
    header: bool = True,
    units: bool = True,
) -> list[dict[str, Any]]:
    """Records of the GPUs.

    :raises AnsibleFilterError: the input is no text, or the arguments do not fit.
    """
    if not isinstance(text, str):
        raise AnsibleFilterError(f"nvidia_smi_gpus reads text, not {type(text).__name__}: pass the .stdout of the command.")
    if format not in FORMATS:
        raise AnsibleFilterError(f"nvidia_smi_gpus: format is {format!r}, but GPUs are listed by {', '.join(FORMATS)}.")
    request = {"format": format, "fields": plain(fields), "header": header, "units": units}
    try:
        gpus: list[dict[str, Any]] = read_nvidia_smi(text, request)["gpus"]
    except ReaderError as problem:
        raise AnsibleFilterError(f"nvidia_smi_gpus: {problem}.") from problem
    return gpus


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"nvidia_smi_gpus": nvidia_smi_gpus}
