"""The checkout that this tool belongs to: its playbooks, roles and ansible.cfg are what it runs."""

from __future__ import annotations

from pathlib import Path

PLAYBOOK = "playbooks/acceptance.yml"
#: All of it must be there.
SIGNS = (PLAYBOOK, "ansible.cfg", "roles/acceptance")


class Missing(Exception):
    """This tool does not lie in a checkout; the text says what to do."""


def root(of: Path = Path(__file__)) -> Path:
    """The folder of the checkout in which the file `of` lies. Raises Missing."""
    place = of.resolve().parents[2]
    lacking = [name for name in SIGNS if not (place / name).exists()]
    if lacking:
        raise Missing(
            f"it runs the playbooks of its own checkout, and {place} has no {', '.join(lacking)}. "
            "Make it in a checkout (`make .venv/control`) and call the `.venv/bin/modelyard` of that one"
        )
    return place
