"""Reader for `nvidia-smi -L`."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record

_GPU = re.compile(r"GPU\s+([0-9]{1,4})\s*:\s*(.*)", re.IGNORECASE)
_MIG = re.compile(r"MIG\s+(\S+)\s+Device\s+([0-9]{1,4})\s*:(.*)", re.IGNORECASE)
_WHOLE_UUID = re.compile(r"(?:MIG-)?(?:GPU-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?:/[0-9]+/[0-9]+)?")
#: Drivers before 470 name a MIG device by its parent and the ids of both instances.
_OLD_MIG_UUID = re.compile(r"MIG-GPU-[^/]*/([0-9]{1,4})/([0-9]{1,4})")


def read(text: str) -> Record:
    """One record per GPU line, one MIG device per line below it. A line that was cut off gives only `truncated`."""
    gpus: List[Record] = []
    mig_devices: List[Record] = []
    errors: List[Record] = []
    said: List[str] = []
    for line in (line.strip() for line in text.split("\n")):
        gpu_line, mig_line = _GPU.match(line), _MIG.match(line)
        if messages.read_line(line):
            said.append(line)
        elif gpu_line:
            name, uuid = _name_and_uuid(gpu_line.group(2))
            if uuid is None:
                errors.append(records.error("truncated"))
                continue
            gpu, complaints = _gpu(int(gpu_line.group(1)), name, uuid)
            gpus.append(gpu)
            errors += complaints
        elif mig_line and gpus:
            _, uuid = _name_and_uuid(mig_line.group(3))
            if uuid is None:
                errors.append(records.error("truncated"))
                continue
            gpus[-1]["mig_mode"] = "Enabled"
            mig_devices.append(_mig_device(gpus[-1], mig_line.group(1), int(mig_line.group(2)), uuid))
        else:
            said.append(line)
    return records.reading(messages.read_messages(said) + errors, gpus, mig_devices=mig_devices)


def _name_and_uuid(text: str) -> Tuple[str, Optional[str]]:
    """What stands before the UUID, and the UUID; None when it is cut off."""
    name, mark, uuid = text.rpartition("(UUID:")
    if not mark:
        # Very old drivers print a serial number in place of the UUID.
        return text.partition(" (")[0].strip(), "" if text.endswith(")") else None
    uuid, closing, _ = uuid.strip().partition(")")
    is_whole = bool(closing) or _WHOLE_UUID.fullmatch(uuid) is not None
    return name.strip(), uuid.strip() if is_whole else None


def _gpu(index: int, name: str, uuid: str) -> Tuple[Record, List[Record]]:
    gpu = records.new_gpu()
    signs = records.Signs()
    gpu["index"], gpu["name"], gpu["uuid"] = index, values.word(name), values.word(uuid)
    signs.field("name", name, vital=True)
    signs.field("uuid", uuid, vital=True)
    gpu["health"] = signs.health
    return gpu, signs.errors(gpu)


def _mig_device(parent: Record, profile: str, index: int, uuid: str) -> Record:
    device = records.new_mig_device(parent)
    device["index"], device["profile"], device["uuid"] = index, profile, values.word(uuid)
    instances = _OLD_MIG_UUID.fullmatch(uuid)
    if instances:
        device["gpu_instance_id"], device["compute_instance_id"] = int(instances.group(1)), int(instances.group(2))
    return device
