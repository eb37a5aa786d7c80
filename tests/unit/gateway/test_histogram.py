"""The histogram of the gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway.histogram import Histogram


def test_without_values():
    assert Histogram().quantile(0.5) is None


def test_bounds_must_rise():
    for bounds in ([], [1, 1], [2, 1]):
        with pytest.raises(ValueError, match="rise"):
            Histogram(bounds)


def test_a_value_on_a_bound_belongs_below_it():
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 8)
    assert histogram.quantile(1) == 2


@given(st.lists(st.floats(0, 700), min_size=1), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values, q):
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    true = sorted(values)[max(0, min(len(values) - 1, -int(-q * len(values) // 1) - 1))]
    edges = (0.0, *histogram.bounds)
    low = max(edge for edge in edges if edge <= true)
    high = min([bound for bound in histogram.bounds if bound >= true], default=edges[-1])
    below = max([edge for edge in edges if edge < low], default=0.0)  # a true value on a bound belongs to the bucket below it
    assert below <= histogram.quantile(q) <= high
