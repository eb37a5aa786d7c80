"""The keeper as a detached process: own session, child subreaper, one log for each start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor import base
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor.systemd import release_earlier


class Plain:
    """Needs nothing of the host and starts nothing again by itself."""

    def start(self, folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
        """Start the keeper and wait until it has written down the engine's pid."""
        words = [python, str(base.program(folder)), "keep", str(folder), "--under", "plain"]
        layout.ask_for(folder, request)
        run = folder / "run"
        before = layout.state(folder)
        with (run / "keeper.err").open("wb") as errors:
            keeper = subprocess.Popen(
                words,
                cwd=str(run),
                env={**base.environment(), **request["marker"]},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        why = f"the keeper of {folder} did not start the engine"

        def failed() -> str:
            return "" if keeper.poll() is None else f"{why}: {base.said(run / 'keeper.err')}"

        state = base.wait_for_state(folder, before, base.START_LIMIT_S, failed)
        if state is None:
            keeper.kill()  # our own child, not reaped: an engine that it starts later would be known to nobody
            keeper.wait()
            raise base.StartError(f"{why} within {base.START_LIMIT_S:.0f} s: {base.said(run / 'keeper.err')}")
        return state

    def release(self, folder: Path, request: Dict[str, Any], limit_s: float) -> List[str]:
        """Nothing starts it again; that its end was ordered is written down."""
        layout.asked_to_stop(folder)
        return release_earlier(folder, request, limit_s)

    def describe(self, folder: Path, request: Dict[str, Any]) -> Dict[str, Any]:
        """The keeper is the supervisor."""
        state = layout.state(folder)
        alive = bool(state and layout.keeper_alive(state))
        return {"kind": "plain", "name": "", "alive": alive, "detail": base.keeper_line(folder), "attach": ""}
