"""Which cases of a test are always run, and which only with `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def always(count: int, cases: Iterable[Any]) -> list[Any]:
    """So many cases for `parametrize` as they are; those after them show the same once more and are marked `further`."""
    cases = list(cases)
    more = (pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.further) for case in cases[count:])
    return [*cases[:count], *more]
