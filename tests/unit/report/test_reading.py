from __future__ import annotations

import pytest

from modelyard.report import figures, reading


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("  two\nlines ", "two\nlines"),
        ("tab\there", "tab\there"),
        ("\x1b[31mred\x07", "\ufffd[31mred\ufffd"),
        ("abc\u202edef", "abc\ufffddef"),
        ("half \ud800", "half \ufffd"),
        (7, "7"),
        (True, "true"),
        ({"a": ["ü"]}, '{"a": ["ü"]}'),
        ("x" * 2005, "x" * 2000 + " ... (5 characters more)"),
    ],
)
def test_text_is_safe_to_show(value, shown):
    assert reading.text(value) == shown


def test_a_line_has_no_breaks_and_nothing_invisible():
    assert reading.line("a\n b\t c\u200bd\r\ne \u00a0\U00011af9 \ue000 é") == "a b c\ufffdd\ufffd e \ufffd \ufffd é"


@pytest.mark.parametrize("value", [None, True, "7", [], float("nan"), float("inf"), 10**400])
def test_what_is_no_finite_number_is_not_known(value):
    assert reading.number(value) is None
    assert reading.whole(value) is None


def test_whole_numbers():
    assert (reading.whole(3), reading.whole(3.0), reading.whole(3.5), reading.whole(1e300)) == (3, 3, None, None)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1796038920.0, "2026-11-30 11:42 UTC"), (0, ""), (None, ""), (-5, ""), (1e20, ""), ("yesterday", "")],
)
def test_moments(seconds, shown):
    assert reading.moment(seconds) == shown


def test_the_id_of_a_run_tells_its_time():
    assert reading.moment(reading.stamp("20261130T114200Z")) == "2026-11-30 11:42 UTC"
    assert [reading.stamp(name) for name in ("20261399T000000Z", "run-7", None, 7, "20261130T114200Z.x")] == [None] * 5


def test_lists_and_dictionaries_of_another_kind_are_empty():
    assert (reading.mapping([1]), reading.items({"a": 1}), reading.mappings([1, {"a": 1}, None])) == ({}, [], [{"a": 1}])
    assert reading.mapping({1: 2, "a": 3}) == {"a": 3}


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (figures.plain(12345.6), "12,346"),
        (figures.plain(20.94, 1), "20.9"),
        (figures.plain(2e20), "2.0e+20"),
        (figures.plain(None), "-"),
        (figures.rate(0.661), "0.66"),
        (figures.rate(35.94), "35.9"),
        (figures.rate(1306.8), "1,307"),
        (figures.span(4.23), "4.2 s"),
        (figures.span(200), "3 min 20 s"),
        (figures.span(7500), "2 h 5 min"),
        (figures.span(1e6), "11 d"),
        (figures.span(-3), "-"),
        (figures.percent(0.71), "71 %"),
        (figures.percent(0.004), "0.4 %"),
        (figures.percent(0), "0 %"),
        (figures.percent(None), "-"),
        (figures.short(1200), "1.2k"),
        (figures.short(0.25), "0.25"),
        (figures.short(3e6), "3M"),
        (figures.numbers([7, 0, 1, 4, 5, 6, 6]), "0,1,4-7"),
        (figures.count(1, "host"), "1 host"),
        (figures.count(1200, "host"), "1,200 hosts"),
        (figures.some(list("abcde")), "a, b, c, d, e"),
        (figures.some(list("abcdef")), "a, b, c, d and 2 more"),
    ],
)
def test_numbers_as_people_read_them(made, shown):
    assert made == shown
