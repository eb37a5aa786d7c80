"""For PYTHONPATH of an engine: it ends with the first batch that has two requests with a schema in it. One at a time is well."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any

MODULE = "vllm.v1.structured_output"


def spoil(manager: Any) -> None:
    """Have the method fail that makes the token masks of a batch."""
    whole = manager.grammar_bitmask

    def grammar_bitmask(self: Any, requests: Any, ids: Any, *more: Any) -> Any:
        if len(ids) > 1:
            raise RuntimeError("two grammars in one batch")
        return whole(self, requests, ids, *more)

    manager.grammar_bitmask = grammar_bitmask


class Finder(importlib.abc.MetaPathFinder):
    """Sees the module once, when it is imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Its own spec, with what follows after it was run."""
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec and spec.loader
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            spoil(module.StructuredOutputManager)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())
