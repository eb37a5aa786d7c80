"""The file with the admin token: for the listener, and for the command that asks it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

TOKEN_LENGTH_MIN = 16


class TokenProblem(Exception):
    """The token file cannot be used. The text says why and what to do."""


def read_token(path: str) -> str:
    """Read the token: the only line of a file that nobody but its owner may read. Raises TokenProblem."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            token = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise TokenProblem(f"the token file {path} cannot be read: {problem}") from problem
    if mode & 0o077:
        raise TokenProblem(f"the token file {path} has mode {mode:04o}, so others can use it: chmod 600 {path}")
    if len(token) < TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenProblem(f"the token file {path} must hold one word of {TOKEN_LENGTH_MIN} or more ASCII characters")
    return token
