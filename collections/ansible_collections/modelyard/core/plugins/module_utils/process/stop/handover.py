"""One stop inside another: systemd runs the stop of a unit while the stop that has ordered it waits.

The inner one only ends the processes and leaves a note of what it did. The outer one, which holds the instance's folder, reads
the note, waits once for the memory of the cards, and writes the only report.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any, Collection, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.account import Account

#: Below run/: the note of the inner stop, {actions: [[seconds of the monotonic clock, words]], signalled: [...]}.
NOTE = "unit_stop.json"


def is_ordered(home: str, service: str, indexes: Collection[int]) -> bool:
    """Does another stop hold the folders of all these instances? The kernel frees what a stop that was killed has held."""
    return bool(indexes) and all(_is_held(layout.instance_dir(home, service, index)) for index in indexes)


def _is_held(folder: Path) -> bool:
    try:
        handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def _note(account: Account, index: int) -> Path:
    return layout.instance_dir(account.home, account.service, index) / "run" / NOTE


def leave(account: Account) -> None:
    """Write down what was done, for the stop that has ordered this one. A full disk costs the words and nothing else."""
    note: Dict[str, Any] = {"actions": [[account.began + at, words] for at, words in account.actions]}
    note["signalled"] = account.signalled
    for index in account.watch.indexes:
        with contextlib.suppress(OSError):
            layout.write_json(_note(account, index), note)


def forget(account: Account) -> None:
    """Remove the notes of earlier stops."""
    for index in account.watch.indexes:
        with contextlib.suppress(OSError):
            _note(account, index).unlink()


def take_over(account: Account) -> None:
    """Make what the stops of the units did a part of this account, at the time when it was done, and remove the notes."""
    for index in account.watch.indexes:
        note = layout.read_json(_note(account, index)) or {}
        for at, words in _actions(note):
            account.actions.append((round(at - account.began, 1), words))
            account.tell(words)
        account.signalled += _signalled(note)
    account.actions.sort(key=lambda action: action[0])
    forget(account)


def _actions(note: Mapping[str, Any]) -> List[Any]:
    """People may have edited the file."""
    listed = note.get("actions")
    pairs = [one for one in listed if isinstance(one, list) and len(one) == 2] if isinstance(listed, list) else []
    return [(at, words) for at, words in pairs if isinstance(at, (int, float)) and isinstance(words, str)]


def _signalled(note: Mapping[str, Any]) -> List[Dict[str, Any]]:
    listed = note.get("signalled")
    keys = {"pid", "start", "signal"}
    return [one for one in listed if isinstance(one, dict) and keys <= set(one)] if isinstance(listed, list) else []
