"""How many clients are let in."""

from __future__ import annotations

import pytest
from modelyard_gateway.descriptors import KEPT, Descriptors


@pytest.mark.parametrize(("limit", "most"), [(None, None), (100, 30), (KEPT, 1), (10, 1), (1024, 492), (1_048_576, 524_268)])
def test_each_client_has_room_for_its_request(limit, most):
    found = Descriptors(limit)
    assert found.most == most
    assert most is None or limit <= KEPT + 2 or 2 * most + KEPT <= limit
    assert not found.full(most or 10**9)
    assert most is None or found.full(most + 1)


def test_those_that_are_told_take_no_place():
    found = Descriptors(100)
    found.turned_away = 5
    assert (found.full(35), found.full(36)) == (False, True)


def test_a_shortage_is_said_once_and_its_end_once():
    found = Descriptors(100)
    assert found.news(30) == ""
    assert found.first_refusal().startswith("30 clients are connected, and more are refused: the limit of 100 descriptors")
    assert [found.first_refusal(), found.news(30), found.news(27)] == ["", "", ""]
    assert found.news(26).startswith("connections are taken again")
    assert [found.news(26), bool(found.first_refusal())] == ["", True]
