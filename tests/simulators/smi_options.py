"""What hy-smi and rocm-smi have in common: their options, and who holds /dev/kfd."""

from __future__ import annotations

import sys

from simulators import cards as cards_of
from simulators import faults, holders
from simulators.state import Sim

#: Options that take a word each (`vram`), which may be left out here.
WORDS = ("--showmeminfo", "-d", "--device")
SHORT = {"-i": "--showid", "-u": "--showuse", "-p": "--showpower", "-t": "--showtemp"}


class Asked:
    """The options of a call: `shown` (those that are `known`), `json`, and the index of `-d`."""

    def __init__(self, arguments, known):
        self.shown = set()
        self.json = False
        self.index = None
        waiting = list(arguments)
        while waiting:
            option = waiting.pop(0)
            option = SHORT.get(option, option)
            if option == "--json":
                self.json = True
            elif option in ("-d", "--device") and waiting:
                self.index = int(waiting.pop(0))
            elif option in known:
                self.shown.add(option)
                if option in WORDS and waiting and not waiting[0].startswith("-"):
                    waiting.pop(0)
            else:
                sys.stderr.write(f"error: unrecognized arguments: {option}\n")
                raise SystemExit(2)


def run(arguments, root, known, answer) -> int:
    """Print what `answer(sim, asked, cards)` returns: text and what goes to standard error; the exit status.

    `known`: options that a tool has beside `--json` and `-d`.
    """
    sim = Sim(root)
    faults.before_output(sim, arguments)
    asked = Asked(arguments, known)
    text, error = answer(sim, asked, present(sim, asked.index))
    sys.stderr.write(error)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return 0


def present(sim, index):
    """The cards that the tool lists: not those that are lost. The others keep their numbers."""
    if sim.fault("no_devices") or sim.fault("driver_not_loaded"):
        return []
    return [card for card in cards_of.look(sim) if not card.lost and index in (None, card.index)]


def processes(sim, cards):
    """{pid: [(card, MiB), ...]} ascending. Who has /dev/kfd open alone stands there without a card."""
    found = {pid: [] for pid in holders.find({0: str(sim.root / "dev/kfd")})[0]}
    for card in cards:
        for pid, _, mib in card.processes:
            found.setdefault(pid, []).append((card, mib))
    return dict(sorted(found.items()))
