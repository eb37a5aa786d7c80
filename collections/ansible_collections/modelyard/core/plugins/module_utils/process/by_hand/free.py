"""Before systemd starts an engine anew: wait longer after each failed start, and until the cards have their memory back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

from ansible_collections.modelyard.core.plugins.module_utils.process import history, layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin, after, cards

MEMORY_S = 120.0


def run(folder: Path, say: Callable[[str], None]) -> int:
    """Exit code: 0 go on, 1 not now (systemd tries again)."""
    if not (folder / "run" / "ordered").exists():  # whoever ordered a start waits for nothing
        starts = history.whole(layout.read_json(folder / "run" / "starts.json"))
        pause = history.wait_s(starts, time.time())
        if pause > 0:
            say(f"{len(history.series(starts))} start(s) in a row have failed: waiting {pause:.0f} s before the next")
            time.sleep(pause)
    home, service, index = str(folder.parents[2]), folder.parent.name, int(folder.name[len(layout.INSTANCE) :])
    where = cards.place(home, service, [index])
    info = layout.read_json(folder.parent / layout.SERVICE_FILE) or {}
    limit_s = float((info.get("stop") or {}).get("memory_s", MEMORY_S))
    # Nothing of the engine lives now but what a stop has handed to an admin: what that holds must come back, the rest is others'.
    left = {pid for pid, _ in admin.left_of(layout.read_json(admin.path(home, service)) or {})}
    verdicts = cards.watch(where, limit_s, lambda table: left, say) if where.watched else []
    # A tool that cannot be asked, or does not say how much is whose, keeps no engine down: it says itself what it lacks.
    held = [f"{v['card']}: {v['what']}" for v in verdicts if v["verdict"] in (cards.HELD, cards.SILENT)]
    if held:
        held += [f"{', '.join(map(str, sorted(left)))} of an earlier stop did not end"] if left else []
        say(f"not started: {'; '.join(held)}. Who holds it: stop.sh, or the playbook preflight.yml")
        return 1
    if after.clear_admin(home, service, verdicts):
        say(after.CLEARED)
    return 0
