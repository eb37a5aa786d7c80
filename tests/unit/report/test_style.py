"""Colours can be told from their ground by everybody: contrast of at least 4.5 to 1 (WCAG 2, level AA), in both themes."""

from __future__ import annotations

import re

import pytest

from modelyard.report import render

STYLE = (render.FOLDER / "style.css").read_text(encoding="utf-8")
WORDS = ("text", "soft", "ok", "note", "warn", "out", "p50", "p95", "p99")


def themes():
    """The colours of the light theme, the dark one, and of paper."""
    return [
        {name: full(value) for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]+)", block)}
        for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    ]


def full(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    return tuple(int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))


def light(colour):
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    brighter, darker = sorted((light(one), light(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_the_measure_itself():
    assert contrast(full("#000"), full("#fff")) == pytest.approx(21)
    assert contrast(full("#777777"), full("#fff")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", range(3))
def test_words_on_their_ground(theme):
    colours = themes()[theme]
    low = {(name, ground): contrast(colours[name], colours[ground]) for name in WORDS for ground in ("ground", "raised")}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}


@pytest.mark.parametrize("theme", range(3))
def test_the_sign_on_its_colour_in_the_strip(theme):
    colours = themes()[theme]
    assert all(contrast(colours["ground"], colours[level]) >= 4.5 for level in ("ok", "note", "warn", "out"))
