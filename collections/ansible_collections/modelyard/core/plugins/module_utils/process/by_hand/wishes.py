"""What a person asks of a start by variables of the environment, and what it makes of the command line. Pure functions."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

TIMEOUT_S = 900.0
MOST = 10**9


class Wishes(NamedTuple):
    """None: as deployed."""

    first: Optional[int]
    base_port: Optional[int]
    max_len: Optional[int]
    max_seqs: Optional[int]
    eager: Optional[bool]
    stagger_s: float
    wave: int
    wait: bool
    timeout_s: float


#: Variable -> what it says, as shown by --help.
VARIABLES = {
    "N": "start the first so many instances",
    "BASE_PORT": "port of instance 0; the others take the ports after it",
    "MAX_LEN": "--max-model-len",
    "MAX_SEQS": "--max-num-seqs",
    "EAGER": "1 or 0: with or without --enforce-eager",
    "STAGGER": "seconds between two waves",
    "WAVE": "instances that are started at once",
    "WAIT": "0: do not wait until they answer",
    "TIMEOUT": "seconds from its start that an instance may take until it answers",
}


def read(environment: Mapping[str, str], info: Mapping[str, Any]) -> Tuple[Wishes, List[str]]:
    """(the wishes, what is wrong with them: one text for each wrong variable). An empty variable is none."""
    wrong: List[str] = []
    count = len(info["instances"])
    start = info.get("start") or {}

    def number(name: str, least: float, most: float, default: Any, whole: bool = True) -> Any:
        text = environment.get(name, "").strip()
        if not text:
            return default
        form = r"[0-9]{1,12}" if whole else r"[0-9]{1,12}(\.[0-9]{1,6})?"
        if not re.fullmatch(form, text) or not least <= float(text) <= most:
            kind = "a whole number" if whole else "a number"
            wrong.append(f"{name}={text}: {kind} from {least:g}" + (f" to {most:g}" if most < MOST else "") + " is needed")
            return default
        return int(text) if whole else float(text)

    def switch(name: str, default: Optional[bool]) -> Optional[bool]:
        text = environment.get(name, "").strip()
        if text not in ("", "0", "1"):
            wrong.append(f"{name}={text}: 0 or 1 is needed")
        return default if text not in ("0", "1") else text == "1"

    wishes = Wishes(
        first=number("N", 1, count, None),
        base_port=number("BASE_PORT", 1, 65535 - max(info["instances"] or [0]), None),
        max_len=number("MAX_LEN", 1, MOST, None),
        max_seqs=number("MAX_SEQS", 1, MOST, None),
        eager=switch("EAGER", None),
        stagger_s=number("STAGGER", 0, 3600, float(start.get("stagger_s", 5.0)), whole=False),
        wave=number("WAVE", 1, 1000, int(start.get("wave", 1))),
        wait=bool(switch("WAIT", True)),
        timeout_s=number("TIMEOUT", 1, MOST, float(info.get("ready_timeout_s") or TIMEOUT_S), whole=False),
    )
    return wishes, wrong


def value(argv: List[str], option: str) -> Optional[str]:
    """The value of an option in a command line, the last one where it stands twice; None without it."""
    found = None
    for place, word in enumerate(argv):
        if word == option and place + 1 < len(argv):
            found = argv[place + 1]
        elif word.startswith(option + "="):
            found = word[len(option) + 1 :]
    return found


def words(argv: List[str], index: int, wishes: Wishes) -> List[str]:
    """Further words for the engine's command line; nothing for a wish that is true already. Of equal options the last counts."""
    more: List[str] = []
    port = None if wishes.base_port is None else wishes.base_port + index
    for option, wanted in (("--port", port), ("--max-model-len", wishes.max_len), ("--max-num-seqs", wishes.max_seqs)):
        if wanted is not None and value(argv, option) != str(wanted):
            more += [option, str(wanted)]
    eager = "--enforce-eager" in argv
    if wishes.eager is not None and wishes.eager != eager:
        more.append("--enforce-eager" if wishes.eager else "--no-enforce-eager")
    return more


def effective(argv: List[str], more: List[str]) -> List[str]:
    """The command line as it works: each option once, with the value that counts."""
    made, waiting = list(argv), list(more)
    while waiting:
        option = waiting.pop(0)
        if option == "--no-enforce-eager":
            made = [word for word in made if word != "--enforce-eager"] + [option]
        elif option == "--enforce-eager":
            made = [word for word in made if word != "--no-enforce-eager"] + [option]
        else:
            wanted = waiting.pop(0)
            places = [place for place, word in enumerate(made[:-1]) if word == option]
            if places:
                made[places[-1] + 1] = wanted
            else:
                made += [option, wanted]
    return made


def applied(request: Mapping[str, Any], wishes: Wishes) -> Dict[str, Any]:
    """The request with the wishes in it. Its digest differs from the deployed one: so the next deploy shows the difference."""
    more = words(list(request["launch"]["argv"]), int(request["index"]), wishes)
    if not more:
        return dict(request)
    mark = hashlib.sha256(json.dumps([request["digest"], more]).encode()).hexdigest()[:16]
    argv = effective(list(request["launch"]["argv"]), more)
    port = int(value(more, "--port") or request["port"])
    return {**request, "port": port, "digest": mark, "words": more, "launch": {**request["launch"], "argv": argv}}
