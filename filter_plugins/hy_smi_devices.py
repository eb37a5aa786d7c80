"""Filter: what hy-smi printed -> list of devices (thin wrapper around the reader)."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import read_hy_smi
from ansible_collections.modelyard.core.plugins.plugin_utils import texts

DOCUMENTATION = r"""
name: hy_smi_devices
short_description: Devices that hy-smi shows
description:
  - Reads what C(hy-smi) of Hygon's DCU driver prints with any of its options, as table, as labelled lines, as JSON or as CSV.
    Also the C(rocm-smi) that DTK installs, and its C(rocminfo).
  - Labels C(DCU) and C(HCU) are the same. Columns and keys are found by name, whatever the version of the tool.
  - Broken or cut output is read as far as it goes. An empty list does not tell why it is empty.
options:
  _input: {description: Standard output of the command. Text; a registered result has it in C(stdout)., type: str, required: true}
  command: {description: The command line that printed it., type: str, default: hy-smi}
"""
EXAMPLES = r"""
- name: Ask for the cards
  ansible.builtin.command:
    argv: [hy-smi, --showmeminfo, vram, --showuse, --json]
  register: smi
  changed_when: false
  check_mode: false

- name: Show the cards on which at most 4 MiB are used
  ansible.builtin.debug:
    msg: "{{ cards | rejectattr('memory_used_mib', 'none') | selectattr('memory_used_mib', 'le', 4) | map(attribute='index') }}"
  vars:
    cards: "{{ smi.stdout | hy_smi_devices(smi.cmd | join(' ')) }}"

- name: Show the cards of hy-smi's table whose utilisation is not known
  ansible.builtin.debug:
    msg: "{{ table.stdout | hy_smi_devices | selectattr('utilization_gpu_pct', 'none') | map(attribute='index') }}"
"""
RETURN = r"""
_value:
  description:
    - Devices in order of their index, which is the one that the tool prints.
    - "Each has C(index), C(name), C(bus_id), C(unique_id), C(memory_total_mib), C(memory_used_mib), C(memory_used_pct),
      C(utilization_gpu_pct), C(temperature_c), C(power_w), C(perf_mode) and C(driver_version)."
    - What was not printed, or was printed as C(N/A), is none and never 0.
  type: list
  elements: dict
"""


def hy_smi_devices(text: str, command: str = "hy-smi") -> list[dict[str, Any]]:
    """Records of the devices.

    :raises AnsibleFilterError: the input or the command is no text.
    """
    texts.wanted("hy_smi_devices", output=text, command=command)
    devices: list[dict[str, Any]] = read_hy_smi(str(text), str(command))["devices"]
    return devices


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"hy_smi_devices": hy_smi_devices}
