"""A plot of a load test as SVG: a measure over the number of clients. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from markupsafe import Markup

from modelyard.report import axis, figures

#: One unit is a pixel on a phone; wider screens show two to four plots side by side.
WIDTH, HEIGHT = 340, 220
LEFT, RIGHT, TOP, BOTTOM = 40, 308, 30, 180
#: Height of a line of text.
LINE = 13
#: Lines whose values are further apart than this are drawn on a logarithmic axis.
WIDE = 25
#: The same for the measured points beside each other.
WIDE_ACROSS = 3


@dataclass(frozen=True)
class Series:
    """One line. `style`: its class on the page; points in the order of x."""

    label: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """`limit`: (value, words) as a line across. `slots`: where the clients become more than the server takes at once.
    `top`: (x, words) of the level where throughput tops out."""

    title: str
    across: str
    series: Sequence[Series]
    limit: tuple[float, str] | None = None
    slots: float | None = None
    top: tuple[float, str] | None = None


def is_drawn(plot: Plot) -> bool:
    """A line needs two points."""
    return len({x for one in plot.series for x, _ in one.points}) > 1


def scales(plot: Plot) -> tuple[axis.Scale, axis.Scale, list[float]]:
    """(across, upwards, ticks upwards), so that every point and line of the plot lies within."""
    across = [x for one in plot.series for x, _ in one.points]
    low, high = min(across), max(across)
    if plot.slots is not None and low / 2 <= plot.slots <= high * 2:
        low, high = min(low, plot.slots), max(high, plot.slots)
    heights = [y for one in plot.series for _, y in one.points] + ([plot.limit[0]] if plot.limit else [])
    positive = [y for y in heights if y > axis.TINY]
    is_log = len(positive) == len(heights) and max(positive) / min(positive) > WIDE
    found = axis.log_ticks(min(heights), max(heights)) if is_log else axis.ticks(max(heights))
    up = axis.Scale(found[0], found[-1], BOTTOM, TOP, is_log)
    return axis.Scale(low, high, LEFT + 8, RIGHT - 8, low > axis.TINY and high / low > WIDE_ACROSS), up, found


def svg(plot: Plot, name: str) -> Markup:
    """`name`: begins the ids of the picture, and is the only one on the page."""
    across, up, found = scales(plot)
    parts = [
        Markup(
            '<svg class="plot" viewBox="0 0 {w} {h}" role="img" aria-labelledby="{n}-t {n}-d">'
            '<title id="{n}-t">{title}</title><desc id="{n}-d">{told}</desc>'
        ).format(w=WIDTH, h=HEIGHT, n=name, title=plot.title, told=described(plot)),
        _slots(plot, across),
        *(_tick(up(value), figures.short(value)) for value in found),
        *_across(plot, across),
        _limit(plot, up),
        _top(plot, across, up),
        *(_line(one, across, up) for one in plot.series),
        *_labels(plot, across, up),
        Markup("</svg>"),
    ]
    return Markup("\n").join(part for part in parts if part)


def described(plot: Plot) -> str:
    """The figures in words, for those who do not see the picture."""
    lines = [
        f"{one.label or plot.title}: " + ", ".join(f"{figures.rate(y)} at {figures.short(x)}" for x, y in one.points)
        for one in plot.series
    ]
    return f"Over {plot.across}. " + ". ".join(lines) + (f". Limit: {plot.limit[1]}" if plot.limit else "")


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "") -> Markup:
    more = Markup(' class="{}"').format(style) if style else ""
    more += Markup(' text-anchor="{}"').format(anchor) if anchor else ""
    return Markup('<text x="{:.1f}" y="{:.1f}"{}>{}</text>').format(x, y, more, words)


def _rule(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return Markup('<path class="{}" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>').format(style, x1, y1, x2, y2)


def _tick(y: float, words: str) -> Markup:
    return _rule(LEFT, y, RIGHT, y, "grid") + _text(LEFT - 6, y + 4, words, "soft", "end")


def _across(plot: Plot, across: axis.Scale) -> list[Markup]:
    """The measured levels are the ticks."""
    levels = sorted({x for one in plot.series for x, _ in one.points})
    places = [across(level) for level in levels]
    shown = [_text(places[i], BOTTOM + 16, figures.short(levels[i]), "soft", "middle") for i in axis.apart(places, 26)]
    marks = [_rule(place, BOTTOM, place, BOTTOM + 4, "grid") for place in places]
    return [*marks, *shown, _text((LEFT + RIGHT) / 2, BOTTOM + 33, plot.across, "soft", "middle")]


def _slots(plot: Plot, across: axis.Scale) -> Markup:
    """The region in which there are more clients than slots is shaded."""
    if plot.slots is None or not across.low <= plot.slots <= across.high:
        return Markup("")
    x = across(plot.slots)
    side = (x + 4, "start") if x < (LEFT + RIGHT) / 2 else (x - 4, "end")
    shade = Markup('<rect class="beyond" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(x, TOP, RIGHT - x, BOTTOM - TOP)
    words = f"{figures.short(plot.slots)} slots"
    return shade + _rule(x, TOP - 14, x, BOTTOM, "slots") + _text(side[0], TOP - 7, words, "soft", side[1])


def _limit(plot: Plot, up: axis.Scale) -> Markup:
    if plot.limit is None:
        return Markup("")
    value, words = plot.limit
    y = up(value)
    return _rule(LEFT, y, RIGHT, y, "limit") + _text(LEFT + 4, y - 4 if y > TOP + LINE else y + LINE, words, "limit-words")


def _top(plot: Plot, across: axis.Scale, up: axis.Scale) -> Markup:
    """A mark at the level where throughput tops out, on the first line."""
    if plot.top is None:
        return Markup("")
    point = next(((x, y) for x, y in plot.series[0].points if x == plot.top[0]), None)
    if point is None:
        return Markup("")
    x, y = across(point[0]), up(point[1])
    ring = Markup('<circle class="top" cx="{:.1f}" cy="{:.1f}" r="7"/>').format(x, y)
    if y - 12 > TOP + 5:
        # Above it is no line: later levels are at most a little higher.
        side = (x, "middle") if LEFT + 30 < x < RIGHT - 30 else (x - 10, "end") if x > LEFT + 30 else (x + 10, "start")
        return ring + _text(side[0], y - 12, plot.top[1], "top-words", side[1])
    side = (x + 6, "start") if x < RIGHT - 60 else (x - 10, "end")
    return ring + _text(side[0], y + 20, plot.top[1], "top-words", side[1])


def _line(one: Series, across: axis.Scale, up: axis.Scale) -> Markup:
    places = [(across(x), up(y)) for x, y in one.points]
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dots = Markup("").join(
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>').format(
            *place, f"{one.label + ' ' if one.label else ''}{figures.rate(y)} at {figures.short(x)}"
        )
        for place, (x, y) in zip(places, one.points)
    )
    return Markup('<g class="{}"><path class="line" d="M{}"/>{}</g>').format(one.style, way, dots)


def _labels(plot: Plot, across: axis.Scale, up: axis.Scale) -> list[Markup]:
    """The name of each line at its end."""
    named = [one for one in plot.series if one.label and one.points]
    places = axis.spread([up(one.points[-1][1]) + 4 for one in named], LINE, TOP, BOTTOM + 4)
    return [_text(across(one.points[-1][0]) + 8, y, one.label, f"{one.style} name") for one, y in zip(named, places)]
