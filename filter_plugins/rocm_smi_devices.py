"""Filter: what rocm-smi, amd-smi or rocminfo printed -> list of devices (thin wrapper around the reader)."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import read_rocm_smi
from ansible_collections.modelyard.core.plugins.plugin_utils import texts

DOCUMENTATION = r"""
name: rocm_smi_devices
short_description: Devices that rocm-smi, amd-smi or rocminfo shows
description:
  - Reads what C(rocm-smi) of ROCm 2 to 7 prints with any of its options, what C(amd-smi) prints by default and with C(list),
    C(monitor) and C(metric), and C(rocminfo). Tables, labelled lines, JSON and CSV.
  - Columns and keys are found by name, whatever the version of the tool.
  - Broken or cut output is read as far as it goes. An empty list does not tell why it is empty. C(rocm-smi) prints nothing to
    standard output and exits with 0 when the driver is missing.
options:
  _input: {description: Standard output of the command. Text; a registered result has it in C(stdout)., type: str, required: true}
  command: {description: The command line that printed it., type: str, default: rocm-smi}
"""
EXAMPLES = r"""
- name: Ask for the cards
  ansible.builtin.command:
    argv: [rocm-smi, --showmeminfo, vram, --showuse, --json]
  register: smi
  changed_when: false
  check_mode: false

- name: Show the cards on which at most 4 MiB are used
  ansible.builtin.debug:
    msg: "{{ cards | rejectattr('memory_used_mib', 'none') | selectattr('memory_used_mib', 'le', 4) | map(attribute='index') }}"
  vars:
    cards: "{{ smi.stdout | rocm_smi_devices(smi.cmd | join(' ')) }}"

- name: Show the names that amd-smi gives
  ansible.builtin.debug:
    msg: "{{ table.stdout | rocm_smi_devices('amd-smi') | map(attribute='name') }}"
"""
RETURN = r"""
_value:
  description:
    - Devices in order of their index, which is the one that the tool prints. For C(rocminfo) it is the place among the agents
      that are no CPU.
    - "Each has C(index), C(name), C(bus_id), C(unique_id), C(memory_total_mib), C(memory_used_mib), C(memory_used_pct),
      C(utilization_gpu_pct), C(temperature_c), C(power_w), C(perf_mode) and C(driver_version)."
    - What was not printed, or was printed as C(N/A), is none and never 0.
  type: list
  elements: dict
"""


def rocm_smi_devices(text: str, command: str = "rocm-smi") -> list[dict[str, Any]]:
    """Records of the devices.

    :raises AnsibleFilterError: the input or the command is no text.
    """
    texts.wanted("rocm_smi_devices", output=text, command=command)
    devices: list[dict[str, Any]] = read_rocm_smi(str(text), str(command))["devices"]
    return devices


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"rocm_smi_devices": rocm_smi_devices}
