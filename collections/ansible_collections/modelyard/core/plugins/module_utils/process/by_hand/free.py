"""Before systemd starts an engine anew: wait longer after each failed start, and until the cards have their memory back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

from ansible_collections.modelyard.core.plugins.module_utils.process import history, layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import cards

MEMORY_S = 120.0


def run(folder: Path, say: Callable[[str], None]) -> int:
    """Exit code: 0 go on, 1 not now (systemd tries again)."""
    if not (folder / "run" / "ordered").exists():  # whoever ordered a start waits for nothing
        starts = history.whole(layout.read_json(folder / "run" / "starts.json"))
        pause = history.wait_s(starts, time.time())
        if pause > 0:
            say(f"{len(history.series(starts))} start(s) in a row have failed: waiting {pause:.0f} s before the next")
            time.sleep(pause)
    where = cards.place(str(folder.parents[2]), folder.parent.name, [int(folder.name[len(layout.INSTANCE) :])])
    if not where.watched:
        return 0
    info = layout.read_json(folder.parent / layout.SERVICE_FILE) or {}
    limit_s = float((info.get("stop") or {}).get("memory_s", MEMORY_S))
    # Nothing of the engine lives now, so all that is held there is other people's or nobody's.
    verdicts = cards.watch(where, limit_s, lambda table: (), say)
    # A tool that cannot be asked, or does not say how much is whose, keeps no engine down: it says itself what it lacks.
    held = [f"{v['card']}: {v['what']}" for v in verdicts if v["verdict"] in (cards.HELD, cards.SILENT)]
    if held:
        say(f"not started: {'; '.join(held)}. Who holds it: stop.sh, or the playbook preflight.yml")
    return 1 if held else 0
