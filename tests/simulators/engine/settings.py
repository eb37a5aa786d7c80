"""What is set beside the command line: where the simulated cards are, how long things take, and which faults strike."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

#: Every setting with what holds when nothing is said.
USUAL = {
    "sysroot": "",  # where simulated cards are installed; empty: an engine on CPU, with one worker a rank
    "load_s": 1.5,  # from the start of the engine until it is ready
    "exit_s": 0.1,  # what the engine's tear-down takes
    "dead_s": 4.0,  # how long the API server goes on with a dead engine
    "token_s": 0.001,  # generation of one token
    "die": "",  # import, engine, loading (in a rank), request (a rank stops answering at the first chat)
    "hang": "",  # loading (never ready), answers (/health goes on)
    "load_signal": "orphans",  # a TERM or INT to the API server before it serves: orphans, lost, clean
    "lose_signals": 0,  # so many signals to the serving API server are lost
    "stubborn": [],  # of server, engine, worker: those ignore TERM and INT
    "together": "",  # two requests with a schema at the same time: die (a rank stops answering), hang (no token comes)
    "guided": "fits",  # answers to a schema: fits, empty ({}), text (unconstrained), cut
}


class Settings:
    """One attribute for each key of USUAL. They travel to the engine's other processes by value."""

    def __init__(self, **values):
        unknown = sorted(set(values) - set(USUAL))
        if unknown:
            raise SystemExit(f"the stand-in has no setting {', '.join(unknown)}; it has {', '.join(USUAL)}")
        self.__dict__.update({**USUAL, **values})

    def __getattr__(self, name):
        raise AttributeError(name)


def read(port) -> Settings:
    """Settings of an instance: of `stand-in.json` in the environment's folder, there `ports` for this one, then of $STAND_IN."""
    try:
        values = json.loads((Path(sys.prefix) / "stand-in.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    alone = values.pop("ports", {}).get(str(port), {})
    return Settings(**{**values, **alone, **json.loads(os.environ.get("STAND_IN") or "{}")})
