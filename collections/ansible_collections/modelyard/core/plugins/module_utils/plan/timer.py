"""The scheduled acceptance on a control node: units for systemd, and its lines among others in a crontab. Pure functions."""

from __future__ import annotations

import re
import shlex
from typing import List, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.unit import quoted

SYSTEMD, SYSTEMD_USER, CRON = "systemd", "systemd_user", "cron"
KINDS = (SYSTEMD, SYSTEMD_USER, CRON)
#: `modelyard accept`: busy services, and a run that is under way. Both are no failure of the unit.
NO_FAILURE = "4 6"
WRITTEN = "# Written by Modelyard (playbooks/schedule.yml); changes made here are lost at its next run."
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
CRON_TIME = re.compile(r"@(hourly|daily|midnight|weekly|monthly)|\S+( \S+){4}")


class Wish(NamedTuple):
    """What is wanted. `words`: the command; `folder`: of the checkout; `calendar`, `cron`: when, in the language of each."""

    name: str
    words: Tuple[str, ...]
    folder: str
    calendar: str
    cron: str
    random_delay_s: int
    user: str


def problem(wish: Wish) -> str:
    """What cannot be scheduled so; empty for nothing. Whether systemd knows the calendar is asked of systemd."""
    if not NAME.fullmatch(wish.name):
        return f"schedule_name {wish.name!r} must be letters, digits, dots, dashes and underscores"
    if not CRON_TIME.fullmatch(wish.cron):
        how = "five fields with one blank between, or @hourly and the like"
        # Ansible takes what stands behind a blank for the next variable, and says nothing.
        return f"schedule_cron {wish.cron!r} is no time of cron: {how}. On a command line: -e \"schedule_cron='7 * * * *'\""
    texts = (*wish.words, wish.folder, wish.calendar, wish.user)
    broken = [text for text in texts if any(ord(c) < 32 or ord(c) == 127 for c in text)]
    if broken:
        return f"{broken[0]!r} has a line end or another control character in it"
    return "schedule_random_delay_s must not be negative" if wish.random_delay_s < 0 else ""


def unit(wish: Wish) -> str:
    """Name without its ending: `modelyard-accept-lab_4090`."""
    return f"modelyard-accept-{wish.name}"


def owner(wish: Wish) -> str:
    """What a unit of this schedule has behind X-Modelyard=; a unit with anything else is somebody else's."""
    return f"accept {wish.name}"


def service(wish: Wish, kind: str) -> str:
    """The unit that runs once. Its failure is that of the acceptance, so that `systemctl --failed` shows it."""
    own = kind == SYSTEMD_USER
    lines: List[str] = [
        WRITTEN,
        "[Unit]",
        f"Description=Modelyard acceptance {wish.name}".replace("%", "%%"),
        f"X-Modelyard={owner(wish)}",
        *([] if own else ["Wants=network-online.target", "After=network-online.target"]),
        "",
        "[Service]",
        "Type=oneshot",
        *([] if own else [f"User={wish.user}"]),
        f"WorkingDirectory={wish.folder}".replace("%", "%%"),
        f"ExecStart={' '.join(quoted(word) for word in wish.words)}",
        "# Busy services, or another run under way.",
        f"SuccessExitStatus={NO_FAILURE}",
        "# The run is asked first: it ends its playbook cleanly and writes down that it was ended.",
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "UMask=0077",
    ]
    return "\n".join(lines) + "\n"


def timer(wish: Wish) -> str:
    """When it runs. A run that was missed while the machine slept is made up for."""
    lines = [
        WRITTEN,
        "[Unit]",
        f"Description=When Modelyard acceptance {wish.name} runs".replace("%", "%%"),
        f"X-Modelyard={owner(wish)}",
        "",
        "[Timer]",
        f"OnCalendar={wish.calendar}",
        "Persistent=true",
        "# The next line alone says how much later than that it may begin; systemd would put up to a minute on top.",
        "AccuracySec=1s",
        f"RandomizedDelaySec={wish.random_delay_s}",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


def mark(name: str) -> str:
    """The line before ours in a crontab."""
    return f"# modelyard-accept-{name}: written by playbooks/schedule.yml, as is the next line"


def cron_line(wish: Wish) -> str:
    """One line for cron, which has no random delay of its own and reads % as a line end."""
    words = [*wish.words, "--quiet", *(["--random-delay", str(wish.random_delay_s)] if wish.random_delay_s else [])]
    # What goes to ansible-playbook stands behind `--`.
    if "--" in wish.words:
        place = wish.words.index("--")
        words = [*wish.words[:place], *words[len(wish.words) :], *wish.words[place:]]
    command = f"cd {shlex.quote(wish.folder)} && exec {' '.join(shlex.quote(word) for word in words)}"
    return f"{wish.cron} {command}".replace("%", "\\%")


def merged(table: str, wish: Wish, present: bool) -> str:
    """The crontab with our two lines in their place, at its end, or without them; every other line as it was."""
    lines = table.split("\n")
    place = next((number for number, line in enumerate(lines) if line == mark(wish.name)), None)
    ours: List[str] = [mark(wish.name), cron_line(wish)] if present else []
    if place is None:
        if not present:
            return table
        start = table if not table or table.endswith("\n") else f"{table}\n"
        return start + "\n".join(ours) + "\n"
    return "\n".join([*lines[:place], *ours, *lines[place + 2 :]])


def entry(table: str, name: str) -> Optional[str]:
    """Our line in a crontab; None for none."""
    lines = table.split("\n")
    place = next((number for number, line in enumerate(lines) if line == mark(name)), None)
    return None if place is None or place + 1 >= len(lines) else lines[place + 1]
