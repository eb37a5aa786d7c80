"""Short forms for people, of numbers and of command lines. Pure functions; the tool of the control node shows the same ones."""

from __future__ import annotations

from typing import Dict, List, Sequence

#: What the words before the first option of `vllm serve MODEL` are.
POSITIONS = ("program", "command", "model")


def numbers(found: Sequence[int]) -> str:
    """`0,1,4-7`, in the given order: three and more that follow each other are shortened."""
    runs: List[List[int]] = []
    for number in found:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def options(words: Sequence[str]) -> Dict[str, str]:
    """The words of a command line by option; `on` for one without a value. Words before all options by POSITIONS."""
    found: Dict[str, List[str]] = {}
    name = ""
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.setdefault(name, []).extend([value] if equals else [])
        else:
            found.setdefault(name or POSITIONS[min(place, len(POSITIONS) - 1)], []).append(word or "''")
    return {name: " ".join(values) or "on" for name, values in found.items()}
