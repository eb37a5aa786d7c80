"""The entry of modelyard.pyz: `python3 modelyard.pyz COMMAND ...`, in the folder of a service.

start [INDEX ...]     stop [INDEX ...]     status [INDEX ...] [--json]
keep DIR, free DIR, stop DIR --for-supervisor [--only-signals]     for supervisors; DIR is the folder of an instance
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed

# Each command loads what it needs before it does anything: the file of the program may be replaced while it runs.
# ruff: noqa: PLC0415

USAGE = """usage: {name} [INDEX ...]{more}

{what}
{variables}"""


def say(text: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _keep(words: List[str]) -> int:
    from ansible_collections.modelyard.core.plugins.module_utils.process import keeper, window

    folder, options = Path(words[0]), dict(zip(words[1::2], words[2::2]))
    kind = options.get("--under", "plain")
    try:
        if kind.startswith("systemd"):
            os.chdir(str(folder))  # a keeper is known by it; its unit begins elsewhere
        if kind == "screen":
            return window.run(folder, window.session())
        return keeper.run(folder, keeper.Orders(kind, options.get("--name", ""), ends_rest=kind.startswith("systemd")))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1


def _free(words: List[str]) -> int:
    from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import free

    return free.run(Path(words[0]), say)


def _service() -> deployed.Deployed:
    return deployed.load(Path(sys.argv[0]).resolve().parent)


def _start(words: List[str]) -> int:
    from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import start, wishes

    if _help(words, "Start what does not run, in waves, and wait until it answers.", "", wishes.VARIABLES):
        return 0
    return start.run(_service(), words, os.environ, say)


def _status(words: List[str]) -> int:
    from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import status

    what = "Say what runs. Exit status: 0 all are ready, 1 not all, 3 nothing runs."
    if _help(words, what, " [--json]", {}):
        return 0
    text, code = status.run(_service(), [w for w in words if w != "--json"], "--json" in words, sys.stdout.isatty())
    say(text)
    return code


def _stop(words: List[str]) -> int:
    from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import stopping

    if "--for-supervisor" in words:
        return stopping.for_supervisor(_service(), Path(words[0]), "--only-signals" in words, say)
    if _help(words, "Stop it: its processes and nobody else's, gently first.", "", {}):
        return 0
    return stopping.run(_service(), words, say)


def _help(words: List[str], what: str, more: str, variables: Dict[str, str]) -> bool:
    if "-h" not in words and "--help" not in words:
        return False
    lines = "".join(f"  {name:10}{text}\n" for name, text in variables.items())
    shown = f"\nVariables of the environment; without them it is as deployed:\n{lines}" if lines else ""
    say(USAGE.format(name=os.environ.get("MODELYARD_SCRIPT", "modelyard.pyz"), more=more, what=what, variables=shown).rstrip())
    return True


INTERRUPTED = {
    "start": ": what was started goes on",
    "stop": ": what was asked to end may still end, the rest runs. Run the stop again, it goes on from there",
}
COMMANDS = {"keep": _keep, "free": _free, "start": _start, "status": _status, "stop": _stop}


def main() -> int:
    """Exit code: 0 done, 1 not or not whole, 2 nothing was done because of what was found or asked for."""
    words = sys.argv[1:]
    if not words or words[0] not in COMMANDS:
        sys.stderr.write((__doc__ or "") + "\n")
        return 2
    try:
        return COMMANDS[words[0]](words[1:])
    except deployed.Refused as refused:
        for reason in refused.reasons:
            sys.stderr.write(f"refused: {reason}\n")
        return 2
    except KeyboardInterrupt:
        status = os.environ.get("MODELYARD_SCRIPT", "status.sh").replace("start", "status").replace("stop", "status")
        sys.stderr.write(f"interrupted{INTERRUPTED.get(words[0], '')}; {status} shows what runs\n")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return 1
