"""Lines that the kernel's log has got since an acceptance began. One look serves all instances. Reads only."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Set

from ansible_collections.modelyard.core.plugins.module_utils.survey import device_files, kernel_log

FRESH_S = 1.0
LIMIT_S = 1.0


class KernelWatch:
    """The log from now on. `why`: why it cannot be read, empty when it can."""

    def __init__(self, sysroot: str, journal: bool) -> None:
        self.path, self.journal = device_files.below(sysroot, kernel_log.KMSG), journal
        self._lock = threading.Lock()
        self._known: Set[str] = set()
        self._fresh: List[Dict[str, Any]] = []
        first = self._read()
        self.why = "" if first["readable"] else first["why"]
        self._known = {event["line"] for event in first["events"]}
        self._began = self._at = time.monotonic()

    def _read(self) -> Dict[str, Any]:
        return kernel_log.read(LIMIT_S, self.journal, self.path)

    def look(self, since: float = float("-inf")) -> List[Dict[str, Any]]:
        """Events since the beginning; none where the log cannot be read.

        A look that is younger than FRESH_S, and was begun after `since` (time.monotonic), serves once more.
        """
        if self.why:
            return []
        with self._lock:
            now = time.monotonic()
            if now - self._at > FRESH_S or self._began < since:
                self._fresh = [event for event in self._read()["events"] if event["line"] not in self._known]
                self._began, self._at = now, time.monotonic()
            return self._fresh
