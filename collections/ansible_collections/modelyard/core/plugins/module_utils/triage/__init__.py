"""Which layer of a service failed, by which lines, and what a careful admin does next. Pure functions over text."""

from __future__ import annotations

from ansible_collections.modelyard.core.plugins.module_utils.triage.answer import classify, classify_stream, classify_streams

__all__ = ["classify", "classify_stream", "classify_streams"]
