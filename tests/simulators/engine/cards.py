"""The simulated cards that a rank works on: which are visible, opening their files, taking memory."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

CONTEXT_MIB = 500  # what the driver's context takes before anything is loaded
VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "hygon": "HIP_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}
SHARED = {"nvidia": ("nvidiactl", "nvidia-uvm"), "hygon": ("kfd", "mkfd"), "amd": ("kfd",)}
KINDS = {"nvidia": "CUDA", "hygon": "HIP", "amd": "HIP"}


class Cards:
    """The cards of one machine, from the code that was installed with them."""

    def __init__(self, sysroot):
        code = str(Path(sysroot) / "code")
        if code not in sys.path:
            sys.path.append(code)
        from simulators import cards, state  # noqa: PLC0415  its place is known only now

        self._look = cards.look
        self.sim = state.Sim(sysroot)
        self.kind = KINDS[self.sim.vendor]

    def visible(self):
        """Cards that this process may see, in the order of its list; the list ends at the first entry that is no card."""
        present = [card for card in self._look(self.sim) if not card.lost and "needs_reset" not in card.faults]
        wanted = os.environ.get(VARIABLES[self.sim.vendor])
        if wanted is None:
            return present
        chosen = []
        for word in wanted.split(","):
            card = next((c for c in present if word.strip() in (str(c.index), c.data["uuid"])), None)
            if card is None:
                break
            chosen.append(card)
        return chosen

    def open(self, rank):
        """The rank's card, with its files open for as long as this process lives. RuntimeError in the words of torch."""
        seen = self.visible()
        if not seen:
            raise RuntimeError(f"No {self.kind} GPUs are available")
        if rank >= len(seen):
            raise RuntimeError(f"{self.kind} error: invalid device ordinal")
        card = seen[rank]
        root = Path(self.sim.root)
        shared = [root / "dev" / name for name in SHARED[self.sim.vendor]]
        for path in [*(path for path in shared if path.exists()), root / card.files[-1]]:
            try:
                os.open(path, os.O_RDWR)
            except OSError as exc:
                raise RuntimeError(f"No {self.kind} GPUs are available ({path}: {exc.strerror})") from exc
        self.use(card, CONTEXT_MIB)
        return card

    def refuse_unless_free(self, card, utilization) -> None:
        """ValueError in vLLM's words when less is free than it asks for."""
        requested = self.requested(card, utilization)
        free = next(c for c in self._look(self.sim) if c.number == card.number).free  # this process is not counted
        if free < requested:
            raise ValueError(
                f"Free memory on device cuda:{card.index} ({_gib(free)}/{_gib(card['total_mib'])} GiB) on startup is less than "
                f"desired GPU memory utilization ({utilization}, {_gib(requested)} GiB). Decrease GPU memory utilization or "
                "reduce GPU memory used by other processes."
            )

    @staticmethod
    def requested(card, utilization) -> int:
        """MiB that an engine takes of a card."""
        return math.ceil(card["total_mib"] * utilization)

    def use(self, card, mib) -> None:
        """This process uses so much of the card from now on. Entries of processes that have ended are dropped."""
        # Without bringing the files of the kernel after the state, which only the owner of the files may do.
        with self.sim.change() as state:
            table = {pid: used for pid, used in state["memory"].items() if Path(f"/proc/{pid}").exists()}
            state["memory"] = {**table, str(os.getpid()): {str(card.number): mib}}


def _gib(mib) -> str:
    return f"{mib / 1024:.2f}"
