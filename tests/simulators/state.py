"""What a simulated machine is and what is wrong with it: two JSON files in ROOT/state.

`machine.json` never changes after installation. `state.json` holds the faults and is replaced as a whole, so that a reader sees
the old one or the new one. `seen.json` belongs to the tools alone: holders whose memory is to come back late.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

EMPTY = {"faults": {}, "cards": [], "memory": {}, "processes": []}


def read_json(path: Path, otherwise):
    """The content of a JSON file; `otherwise` where there is none or only half of one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return otherwise


def write_json(path: Path, content) -> None:
    """Replace a file as a whole; a half-written one is never seen under its name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=1), encoding="utf-8")
    draft.chmod(0o666)  # tools run as any user, and the next one replaces it
    draft.replace(path)


class Sim:
    """One simulated machine below `root`, which is the sysroot, too."""

    def __init__(self, root):
        self.root = Path(root)
        self.folder = self.root / "state"
        self.machine = read_json(self.folder / "machine.json", None)
        if self.machine is None:
            raise SystemExit(f"no simulated machine in {self.root}: run install.py first")
        self.state = read_json(self.folder / "state.json", EMPTY)

    @property
    def vendor(self) -> str:
        """`nvidia`, `hygon`, `amd`, or nothing."""
        return self.machine["vendor"]

    def fault(self, name: str):
        """The value of a fault of the machine, or None."""
        return self.state["faults"].get(name)

    def card_faults(self, number: int) -> dict:
        """The faults of a card by its place in the machine."""
        cards = self.state["cards"]
        return cards[number]["faults"] if number < len(cards) else {}

    @contextmanager
    def change(self, after=None):
        """The state to be changed, alone; written when the block ends without an error, then `after(self)` is called."""
        with (self.folder / "lock").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.state = read_json(self.folder / "state.json", EMPTY)
            for _ in range(len(self.state["cards"]), len(self.machine["cards"])):
                self.state["cards"].append({"faults": {}, "util": 0})
            yield self.state
            write_json(self.folder / "state.json", self.state)
            if after:
                after(self)
