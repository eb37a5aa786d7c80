"""For PYTHONPATH of the laboratory: faults in the engine's scheduler, chosen by the environment variable LAB_FAULT."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from typing import Any


def leaks(manager: Any) -> None:
    """A request that goes away after it was preempted keeps one of its blocks."""
    whole = manager.free

    def free(self: Any, request: Any) -> None:
        if request.num_preemptions and request.status.name == "FINISHED_ABORTED":
            for of_kind in self.coordinator.single_type_managers:
                of_kind.req_to_blocks[request.request_id][-1:] = []
        whole(self, request)

    manager.free = free


def crashes(scheduler: Any) -> None:
    """An assertion on the scheduler's own books: a request that finishes in the step in which it was preempted."""
    whole = scheduler._handle_stopped_request

    def handle(self: Any, request: Any) -> bool:
        assert request.num_computed_tokens > 0, "a request without computed tokens has finished"
        return bool(whole(self, request))

    scheduler._handle_stopped_request = handle


FAULTS = {
    "leak": ("vllm.v1.core.kv_cache_manager", "KVCacheManager", leaks),
    "crash": ("vllm.v1.core.sched.scheduler", "Scheduler", crashes),
}


class Finder(importlib.abc.MetaPathFinder):
    """Sees the module once, when it is imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Its own spec, with the fault put in after it was run."""
        module_name, class_name, spoil = FAULTS[os.environ["LAB_FAULT"]]
        if fullname != module_name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec and spec.loader
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            spoil(getattr(module, class_name))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("LAB_FAULT"):
    sys.meta_path.insert(0, Finder())
