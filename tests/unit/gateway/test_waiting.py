"""The queue before the backends."""

from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway.waiting import Waiting


class Item:
    def __init__(self, who, number):
        self.who, self.number = who, number

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


def test_who_sends_many_delays_only_himself():
    queue = Waiting(10)
    for number in range(4):
        queue.put(Item("greedy", number), "greedy")
    queue.put(Item("other", 0), "other")
    found = [queue.take() for _ in range(5)]
    assert [(item.who, item.number) for item in found] == [
        ("greedy", 0),
        ("other", 0),
        ("greedy", 1),
        ("greedy", 2),
        ("greedy", 3),
    ]
    assert queue.take() is None and not queue


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "remove"]), st.integers(0, 3)), max_size=80), st.integers(0, 6))
def test_each_client_in_its_own_order_and_never_more_than_allowed(steps, size):
    queue, inside = Waiting(size), []
    for number, (what, who) in enumerate(steps):
        if what == "put":
            item = Item(str(who), number)
            assert queue.put(item, item.who) == (len(inside) < size)
            if len(inside) < size:
                inside.append(item)
        elif what == "take":
            item = queue.take()
            assert (item is None) == (not inside)
            if item is not None:
                assert item is next(one for one in inside if one.who == item.who)
                inside.remove(item)
        elif inside:
            item = inside.pop(who % len(inside))
            queue.remove(item)
            queue.remove(item)
        assert len(queue) == len(inside) and set(queue.all()) == set(inside)
