"""A named session of screen. Its window shows the log as it grows; the engine does not hang on it.

The program in the window starts the keeper in a session of its own. So Ctrl-C in the window, a terminal that does not read, and
the end of screen itself do nothing to the engine: that people look in, or not, says nothing about its health.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor import base
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor.systemd import release_earlier
from ansible_collections.modelyard.core.plugins.module_utils.survey import sessions

SCREEN_LIMIT_S = 10.0


def of_name(name: str) -> List[Dict[str, Any]]:
    """Sessions of screen with exactly this name, of whichever user."""
    table = {pid: p for pid, p in proc.processes().items() if p.comm.lower().startswith("screen")}
    return [s for s in sessions.sessions(table, opened.Handles({}, set())) if s["kind"] == "screen" and s["name"] == name]


def full_id(session: Dict[str, Any]) -> str:
    """`368558.qwen3-14b-32k`: names one session for good, where the name alone can fit several."""
    return f"{session['pid']}.{session['name']}"


class Screen:
    """Starts nothing again by itself."""

    def start(self, folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
        """Start a detached session with the keeper in it and wait until the engine's pid is written down."""
        name = request["session"]
        words = [python, str(base.program(folder)), "keep", str(folder), "--under", "screen"]
        screen = shutil.which("screen", path=base.environment()["PATH"])
        if screen is None:
            raise base.StartError("screen is not installed here: install it, or choose another supervisor for the service")
        taken = of_name(name)
        if taken:
            raise base.StartError(self._taken(folder, taken[0]))
        layout.ask_for(folder, request)
        run = folder / "run"
        before = layout.state(folder)
        (run / "keeper.err").write_bytes(b"")
        # Without anybody's .screenrc: it could keep dead windows, run other programs or write logs of its own.
        try:
            made = subprocess.run(
                [screen, "-U", "-c", "/dev/null", "-dmS", name, *words],
                cwd="/",
                env={**base.environment(), "TERM": "xterm"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SCREEN_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as exc:
            raise base.StartError(f"screen could not start the session {name}: {exc}") from exc
        output = made.stdout.decode("utf-8", "replace").strip()
        if made.returncode != 0:
            raise base.StartError(f"screen could not start the session {name} (exit code {made.returncode}): {output}")

        def failed() -> str:
            wrong = (run / "keeper.err").stat().st_size > 0
            return f"the keeper of {folder} did not start the engine: {base.said(run / 'keeper.err')}" if wrong else ""

        state = base.wait_for_state(folder, before, base.START_LIMIT_S, failed)
        if state is None:
            said = base.said(run / "keeper.err")
            raise base.StartError(f"the session {name} of screen started, but no engine in it: {output} {said}".strip())
        return state

    def _taken(self, folder: Path, session: Dict[str, Any]) -> str:
        state = layout.state(folder) or {}
        who = f"a screen session {full_id(session)} of user {session['user']} is there"
        if (state.get("supervised") or {}).get("name") == full_id(session):
            return f"{who}: the window of the last start of this instance has not closed yet; try again in a moment"
        return (
            f"{who}, which is not this instance's: two of one name cannot be told apart. Ask that user to end it, "
            "or rename the service"
        )

    def release(self, folder: Path, request: Dict[str, Any], limit_s: float) -> List[str]:
        """Nothing starts it again; that its end was ordered is written down. The window closes after the engine."""
        layout.asked_to_stop(folder)
        return release_earlier(folder, request, limit_s)

    def describe(self, folder: Path, request: Dict[str, Any]) -> Dict[str, Any]:
        """Whether the session is there, and the command to look in: never one that would take it from somebody else."""
        state: Optional[Dict[str, Any]] = layout.state(folder)
        name = str(((state or {}).get("supervised") or {}).get("name") or "")
        session = next((s for s in of_name(request["session"]) if full_id(s) == name), None)
        seen = {True: "attached", False: "detached", None: "attached or not: cannot be seen"}
        detail = base.keeper_line(folder)
        if session is not None:
            detail += f"; session {seen[session['attached']]}"
        elif state and layout.keeper_alive(state):
            detail += "; its session is gone, the engine runs on"
        attach = f"screen -r {name}" if session is not None else ""
        return {
            "kind": "screen",
            "name": name or request["session"],
            "alive": session is not None,
            "detail": detail,
            "attach": attach,
        }
