"""Before systemd starts an engine anew: wait longer after each failed start, and until the cards have their memory back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

from ansible_collections.modelyard.core.plugins.module_utils.process import history, layout
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import card_memory

POLL_S = 2.0
MEMORY_S = 120.0


def run(folder: Path, say: Callable[[str], None]) -> int:
    """Exit code: 0 go on, 1 not now (systemd tries again)."""
    if not (folder / "run" / "ordered").exists():  # whoever ordered a start waits for nothing
        starts = history.whole(layout.read_json(folder / "run" / "starts.json"))
        pause = history.wait_s(starts, time.time())
        if pause > 0:
            say(f"{len(history.series(starts))} start(s) in a row have failed: waiting {pause:.0f} s before the next")
            time.sleep(pause)
    request, info = layout.request(folder) or {}, layout.read_json(folder.parent / layout.SERVICE_FILE) or {}
    devices = request.get("devices") or []
    if not devices or not card_memory.watched(info):
        return 0
    home = str(info.get("home") or folder.parent.parent.parent)
    limit = time.monotonic() + float((info.get("stop") or {}).get("memory_s", MEMORY_S))
    told = ""
    while True:
        missing = card_memory.missing(devices, card_memory.look(info, home))
        if not missing:
            return 0
        if "; ".join(missing) != told:
            told = "; ".join(missing)
            say(f"waiting for the memory of the cards: {told}")
        if time.monotonic() >= limit:
            say(f"not started: {told}. Who holds it: stop.sh, or the playbook preflight.yml")
            return 1
        time.sleep(POLL_S)
