"""For PYTHONPATH of an engine: a fault in it, chosen by the environment variable ENGINE_FAULT."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from typing import Any


def two_grammars(manager: Any) -> None:
    """The engine ends with the first batch that has two requests with a schema in it. One at a time is well."""
    whole = manager.grammar_bitmask

    def grammar_bitmask(self: Any, requests: Any, ids: Any, *more: Any) -> Any:
        if len(ids) > 1:
            raise RuntimeError("two grammars in one batch")
        return whole(self, requests, ids, *more)

    manager.grammar_bitmask = grammar_bitmask


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
    "two grammars": ("vllm.v1.structured_output", "StructuredOutputManager", two_grammars),
    "leak": ("vllm.v1.core.kv_cache_manager", "KVCacheManager", leaks),
    "crash": ("vllm.v1.core.sched.scheduler", "Scheduler", crashes),
}


class Finder(importlib.abc.MetaPathFinder):
    """Sees the module once, when it is imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Its own spec, with the fault put in after it was run."""
        module_name, class_name, spoil = FAULTS[os.environ["ENGINE_FAULT"]]
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


if os.environ.get("ENGINE_FAULT"):
    sys.meta_path.insert(0, Finder())
