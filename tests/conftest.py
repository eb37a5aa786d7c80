"""What all tests share."""

from __future__ import annotations

import os
from typing import Any

import pytest

skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was left out, and why."""
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: Any) -> None:
    """In CI nothing may be left out."""
    if skipped and os.environ.get("CI") == "true" and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nleft out, which CI does not allow:", *skipped, sep="\n  ")
