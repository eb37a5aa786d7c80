"""The gateway's admin token: who can read it may take instances out. That is the owner of the home, and root."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import proc

BYTES = 16


def make(path: Path, home: Path) -> None:
    """Make the token where there is none that this user can read; as root, hand it to whom the home belongs to. GatewayError.

    The gateway reads the file at each request, so one that runs takes a new token at once.
    """
    try:
        found = path.lstat() if os.path.lexists(path) else None
        if found is not None and (not stat.S_ISREG(found.st_mode) or not _is_mine(found)):
            path.unlink()  # who runs the gateway now could not read it
            found = None
        if found is None:
            handle = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(f"{secrets.token_hex(BYTES)}\n")
        if os.geteuid() == 0:
            owner = home.stat()
            os.chown(str(path), owner.st_uid, owner.st_gid, follow_symlinks=False)
    except OSError as exc:
        raise GatewayError(
            f"the admin token {path} cannot be made: {exc.strerror}. Deploy as {_owner(home)}, or as root"
        ) from exc


def _is_mine(found: os.stat_result) -> bool:
    return os.geteuid() in (0, found.st_uid)


def _owner(home: Path) -> str:
    try:
        return proc.user_name(home.stat().st_uid)
    except OSError:
        return "the owner of the home"
