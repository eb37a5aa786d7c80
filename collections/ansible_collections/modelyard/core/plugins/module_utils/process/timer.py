"""Installing and removing the scheduled acceptance: a timer of systemd (the system's or this user's), or lines in a crontab."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan import timer
from ansible_collections.modelyard.core.plugins.module_utils.process import systemctl
from ansible_collections.modelyard.core.plugins.module_utils.survey import tool

LIMIT_S = 30.0
AUTO = "auto"
Change = Dict[str, str]


class Failed(Exception):
    """It cannot be scheduled, or not so; the text says why and what to do. `systemctl.Refused` stands beside it."""


def program(name: str) -> str:
    """Where a program lies; empty for none."""
    return tool.find(name, (), ":".join([os.environ.get("PATH", ""), *tool.SYSTEM_FOLDERS]))


def choose(kind: str, user: str) -> str:
    """Who is to start it. Raises Failed, with everything that was looked for."""
    lacks = {
        timer.SYSTEMD: "" if systemctl.Manager(False).is_there else "systemd does not run here",
        timer.SYSTEMD_USER: systemctl.user_manager_problem(),
        timer.CRON: "" if program("crontab") else "there is no program crontab",
    }
    if kind != AUTO:
        if lacks[kind]:
            raise Failed(f"schedule_kind is {kind}, and {lacks[kind]}. Choose another kind, or {AUTO}")
        return kind
    if os.geteuid() != 0:
        lacks[timer.SYSTEMD] = lacks[timer.SYSTEMD] or "this user is not root (schedule_kind: systemd takes sudo)"
        if not lacks[timer.SYSTEMD_USER] and not systemctl.lingers(user):
            lacks[timer.SYSTEMD_USER] = f"the manager of {user} ends with the last login (loginctl enable-linger {user})"
    found = next((name for name in timer.KINDS if not lacks[name]), None)
    if found is None:
        raise Failed(f"nothing here starts a run on time: {'; '.join(f'{name}: {why}' for name, why in lacks.items())}")
    return found


class Units:
    """The timer and its service at one manager of systemd."""

    def __init__(self, wish: timer.Wish, kind: str) -> None:
        self.wish, self.kind = wish, kind
        self.manager = systemctl.Manager(kind == timer.SYSTEMD_USER)
        base = timer.unit(wish)
        self.timer = f"{base}.timer"
        self.texts = {f"{base}.service": timer.service(wish, kind), self.timer: timer.timer(wish)}

    def _there(self, name: str) -> Optional[str]:
        try:
            return (self.manager.units / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            raise Failed(f"{self.manager.units / name} cannot be read: {exc}") from exc

    def changes(self, present: bool) -> List[Change]:
        """What would change: files, and whether the timer is on. Raises Failed for a unit that is somebody else's."""
        found: List[Change] = []
        for name, text in self.texts.items():
            before, path = self._there(name), str(self.manager.units / name)
            if before is not None and systemctl.owner(before) != timer.owner(self.wish):
                if not present:
                    continue
                raise Failed(f"{path} is not of this project: remove it, or give this schedule another schedule_name")
            after = text if present else ""
            if (before or "") != after:
                found.append({"path": path, "before": before or "", "after": after})
        if present and not found and not self._is_on():
            found.append({"path": self.timer, "before": "off\n", "after": "on\n"})
        return found

    def _is_on(self) -> bool:
        seen = self.manager.show(self.timer)
        return seen.get("UnitFileState") == "enabled" and seen.get("ActiveState") == "active"

    def check(self) -> None:
        """Would systemd read it so? Raises Failed with its own words. Without systemd-analyze nothing is asked."""
        analyze = program("systemd-analyze")
        if not analyze:
            return
        asked = tool.run([analyze, "calendar", self.wish.calendar], LIMIT_S)
        if asked["rc"] != 0:
            raise Failed(f"schedule_calendar {self.wish.calendar!r}: {_said(asked)}. See man systemd.time")
        folder = Path(tempfile.mkdtemp(prefix="modelyard-units-"))
        try:
            for name, text in self.texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            words = ["--user"] if self.kind == timer.SYSTEMD_USER else []
            asked = tool.run([analyze, *words, "verify", *(str(folder / name) for name in self.texts)], LIMIT_S)
            own = [line for line in str(asked["stderr"]).splitlines() if timer.unit(self.wish) in line]
            if asked["rc"] != 0 and own:
                raise Failed(f"systemd would not take the units: {' / '.join(own)[:600]}")
        finally:
            shutil.rmtree(str(folder), ignore_errors=True)

    def put(self) -> None:
        """Write the units and switch the timer on. Raises systemctl.Refused."""
        folder = Path(tempfile.mkdtemp(prefix="modelyard-units-"))
        try:
            for name, text in self.texts.items():
                (folder / name).write_text(text, encoding="utf-8")
                self.manager.install(folder / name, name)
        finally:
            shutil.rmtree(str(folder), ignore_errors=True)
        self.manager.enable(self.timer)
        self.manager.start(self.timer)

    def remove(self, changes: List[Change]) -> None:
        """Switch the timer off and remove those files. A run that is under way goes on."""
        if any(change["path"].endswith(".timer") for change in changes):
            self.manager.stop(self.timer, LIMIT_S)
            self.manager.disable(self.timer)
            # When it last ran: a schedule of this name that is made later would take the time between for missed runs.
            self.manager.remove_file(self.manager.stamps / f"stamp-{self.timer}")
        for change in changes:
            self.manager.remove(os.path.basename(change["path"]))


class Table:
    """The crontab of a user."""

    def __init__(self, wish: timer.Wish) -> None:
        self.wish = wish
        self.words = [program("crontab") or "crontab"]
        if os.geteuid() == 0 and wish.user != "root":
            self.words += ["-u", wish.user]

    def read(self) -> str:
        """The table as it is; empty for none. Raises Failed."""
        if not program("crontab"):
            return ""
        asked = tool.run([*self.words, "-l"], LIMIT_S)
        if asked["rc"] != 0 and "no crontab for" not in str(asked["stderr"]):
            raise Failed(f"the crontab of {self.wish.user} cannot be read: {_said(asked)}")
        return str(asked["stdout"]) if asked["rc"] == 0 else ""

    def changes(self, present: bool) -> List[Change]:
        """What would change in it."""
        before = self.read()
        after = timer.merged(before, self.wish, present)
        return [] if before == after else [{"path": f"crontab of {self.wish.user}", "before": before, "after": after}]

    def put(self, table: str) -> None:
        """Install the whole table; cron itself checks it. Raises Failed; the old table is there then."""
        with tempfile.NamedTemporaryFile("w", prefix="modelyard-crontab-", encoding="utf-8") as file:
            file.write(table)
            file.flush()
            done = tool.run([*self.words, file.name], LIMIT_S)
        if done["rc"] != 0:
            raise Failed(f"cron did not take the table: {_said(done)}")


def _said(done: Dict[str, Any]) -> str:
    return " ".join(f"{done['stderr']} {done['stdout']} {done['note']}".split())[:600] or f"exit code {done['rc']}"


def apply(wish: timer.Wish, kind: str, present: bool, check_mode: bool) -> Dict[str, Any]:
    """Make it so: installed at the one kind and at no other, or nowhere. Returns {changed, changes, kind}.

    Raises Failed and systemctl.Refused.
    """
    wrong = timer.problem(wish)
    if wrong:
        raise Failed(wrong)
    chosen = choose(kind, wish.user) if present else ""
    if chosen == timer.SYSTEMD_USER and os.geteuid() == 0 and wish.user != "root":
        raise Failed(f"the own systemd of {wish.user} can only be reached by that user: run the playbook as {wish.user}")
    changes: List[Change] = []
    for name in (timer.SYSTEMD, timer.SYSTEMD_USER):
        units, wanted = Units(wish, name), name == chosen
        if not (wanted or units.manager.is_there):
            continue
        found = units.changes(wanted)
        changes += found
        if wanted:
            units.check()
        if found and not check_mode:
            if wanted:
                units.put()
            else:
                units.remove(found)
    table = Table(wish)
    found = table.changes(chosen == timer.CRON)
    if found and not check_mode:
        table.put(found[0]["after"])
    changes += found
    return {"changed": bool(changes), "changes": changes, "kind": chosen}
