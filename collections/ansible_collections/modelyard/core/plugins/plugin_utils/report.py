"""A report on all hosts of a play: what each has registered, and a JSON file on the control node."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail


def registered(variables: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The variables of every host of the play by name, in order, whether it still takes part or not.

    Raw: what was registered holds no templates, and looking for some in a hundred hosts takes a while.
    """
    of_host = getattr(variables["hostvars"], "raw_get", variables["hostvars"].__getitem__)
    return {str(name): of_host(str(name)) for name in variables["ansible_play_hosts_all"]}


def write(path: Path, hosts: Mapping[str, Any]) -> None:
    """Whole or not at all; for the owner alone, because surveys name users and commands.

    :raises AnsibleActionFail: it could not be written.
    """
    document = {"schema": 1, "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "hosts": hosts}
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as exc:
        raise AnsibleActionFail(f"the report could not be written to {path}: {exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
