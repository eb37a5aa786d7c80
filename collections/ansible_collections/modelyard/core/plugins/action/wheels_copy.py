"""Action: copy to a host the wheels that it lacks, in portions, each of which stays there when the run is broken off."""

from __future__ import annotations

import json
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.survey.wheelhouse import MANIFEST
from ansible_collections.modelyard.core.plugins.plugin_utils import call
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
#: One lies on the host twice while it is taken, and on the control node once more.
PORTION_MIB = 256
SPARE_MIB = 512


class ActionModule(ActionBase):  # type: ignore[misc]
    """`source`: folder of one runtime on the control node; `folder`: on the host; `portion_mib`: so much at once."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Nothing is transferred that is there; the wheelhouse counts when all of it is. One that is only there stays."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = plain(dict(self._task.args)), task_vars or {}
        source, folder, name = Path(args["source"]), args["folder"], variables.get("inventory_hostname", "")
        if not (source / MANIFEST).is_file():
            # The plan has found the host's own to be whole and of the right lock.
            return {**result, "changed": False, "copied": [], "mib": 0}
        said = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
        answer = call.module(self, "wheels_copy", {"folder": folder, "said": said}, variables)
        sizes = {wheel: int(said["files"][wheel]["size"]) for wheel in answer["lacking"]}
        total, moved, began = sum(sizes.values()), 0, time.monotonic()
        result.update(changed=bool(sizes) or answer["changed"], copied=sorted(sizes), mib=total >> 20)
        if (total >> 20) + SPARE_MIB > answer["free_mib"] and sizes:
            what = f"{total >> 20} MiB of wheels are to be copied to {folder} on {name}, {answer['free_mib']} MiB are free"
            raise AnsibleActionFail(f"PF-DISK: {what}. Make room, or name another folder with modelyard_wheelhouse")
        if self._task.check_mode:
            return result
        for portion in portions(sizes, float(args.get("portion_mib", PORTION_MIB)) * 2**20):
            self._send(source, folder, portion, said, variables)
            moved += sum(sizes[wheel] for wheel in portion)
            display.display(f"  [{time.monotonic() - began:4.0f} s] {name}: {moved >> 20} of {total >> 20} MiB of wheels copied")
        return result

    def _send(self, source: Path, folder: str, portion: list[str], said: dict[str, Any], variables: dict[str, Any]) -> None:
        """As one file, because each takes a while; through a folder of the login's own, from where another user may take it."""
        place = self._make_tmp_path()
        try:
            there = self._connection._shell.join_path(place, "portion.tar")
            with tempfile.NamedTemporaryFile(prefix="modelyard-", suffix=".tar") as here:
                with tarfile.open(here.name, "w") as archive:
                    for wheel in portion:
                        archive.add(source / wheel, arcname=wheel)
                self._transfer_file(here.name, there)
            self._fixup_perms2((place, there))
            call.module(self, "wheels_copy", {"folder": folder, "said": said, "portion": there}, variables)
        finally:
            self._remove_tmp_path(place)


def portions(sizes: dict[str, int], most: float) -> Iterator[list[str]]:
    """Names in order, so many at once as have no more bytes than that together, and at least one."""
    portion: list[str] = []
    for name, size in sorted(sizes.items()):
        if portion and size + sum(sizes[other] for other in portion) > most:
            yield portion
            portion = []
        portion.append(name)
    if portion:
        yield portion
