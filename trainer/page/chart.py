"""Charts as SVG, drawn once: the file needs no script to show them."""

import dataclasses
import functools
import html
import math
from collections.abc import Sequence

from tfps import byte_size

_SIGNS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
# A unit, the one below it, and how both are written.
_SPANS = (
    (_DAY, _HOUR, "{} d", "{} d {} h"),
    (_HOUR, _MINUTE, "{} h", "{}:{:02} h"),
    (_MINUTE, 1.0, "{} min", "{}:{:02} min"),
)
_ROUND_SECONDS = (
    *(2.0, 5.0, 10.0, 15.0, 30.0),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
)
NUMBER, BYTES, SECONDS, SHARE = "number", "bytes", "seconds", "share"
WIDTH, HEIGHT = 380, 230  # as wide as a telephone: text is then as large there as elsewhere
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 10, 38
_CHARACTER = 6.5  # as wide as one of a text is at most, on average
_MOST_POINTS = 300  # of a curve: more could not be told apart
COLORS = 8  # how many the page's style has: c0, c1, …
Point = tuple[float, float]
_END, _MIDDLE = 'text-anchor="end"', 'text-anchor="middle"'


def show(value: float, unit: str = NUMBER) -> str:
    """A value of a unit as people read it, such as 12.5k, 3 MiB, 1:30 h or 20%."""
    if unit == SHARE:
        return f"{100 * value:.3g}%"
    if unit == SECONDS:
        return _span(value)
    if unit == BYTES:
        return byte_size.show(value)
    for size, sign in _SIGNS:
        if abs(value) >= size:
            return f"{_short(value / size)}{sign}"
    return _short(value)


def _span(seconds: float) -> str:
    """A time in its largest unit and the one below, short enough for an axis."""
    for size, part_size, alone, with_parts in _SPANS:
        # Of 59.96 s and the like the parts, rounded, are a whole of the larger unit.
        parts = round(seconds / part_size)
        if parts * part_size >= size:
            whole, left = divmod(parts, round(size / part_size))
            return (with_parts if left else alone).format(whole, left)
    return f"{_short(seconds)} s"


def _short(value: float) -> str:
    """Four digits and no more zeros than need be."""
    return f"{value:.4g}"


@dataclasses.dataclass(frozen=True)
class Scale:
    """Values between two ends, and where they lie on a line of so many pixels."""

    low: float
    high: float
    pixels: float
    ticks: tuple[float, ...]

    @classmethod
    def of(
        cls, low: float, high: float, pixels: float, unit: str = NUMBER, most: int = 6
    ) -> "Scale":
        """Two values between round ones; of bytes and time other numbers are round."""
        if high <= low:
            high = low + (abs(low) or 1.0)
        step = _round_step((high - low) / (most - 1), unit)
        first, last = math.floor(low / step), math.ceil(high / step)
        ticks = tuple(number * step for number in range(first, last + 1))
        return cls(ticks[0], ticks[-1], pixels, ticks)

    def place(self, value: float) -> float:
        """Where a value lies, in pixels from the least one."""
        return (value - self.low) / (self.high - self.low) * self.pixels


def _round_step(least: float, unit: str) -> float:
    """The smallest round number that is no less."""
    if unit == SECONDS and least > 1:
        days = least / _DAY
        return next((x for x in _ROUND_SECONDS if x >= least), None) or _DAY * decimal_step(days)
    if unit == BYTES and least >= 1024:
        return 2.0 ** math.ceil(math.log2(least))
    return decimal_step(least)


def decimal_step(least: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is no less."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= least * (1 - 1e-9))


@dataclasses.dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    color: int = 0
    are_steps: bool = False
    has_dots: bool = False

    @functools.cached_property
    def drawn(self) -> list[Point]:
        """The points that have a place: a loss may be infinite, and an AUC no number."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclasses.dataclass(frozen=True)
class Mark:
    """Something that happened, as a line across the chart."""

    at: float
    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """Curves over the same axis."""

    title: str
    x: str
    series: Sequence[Series]
    x_unit: str = NUMBER
    y_unit: str = NUMBER
    marks: Sequence[Mark] = ()
    from_zero: bool = False

    @property
    def is_empty(self) -> bool:
        return not any(each.drawn for each in self.series)

    @property
    def left_out(self) -> int:
        """How many points have no place."""
        return sum(len(each.points) - len(each.drawn) for each in self.series)

    def svg(self) -> str:
        """The picture; its text is escaped, whatever the names are."""
        points = [point for each in self.series for point in each.drawn]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        low = min(0.0, *ys) if self.from_zero else min(ys)
        across = Scale.of(min(xs), max(xs), WIDTH - _LEFT - _RIGHT, self.x_unit, 5)
        up = Scale.of(low, max(ys), HEIGHT - _TOP - _BOTTOM, self.y_unit, 5)
        parts = [*self._axes(across, up), *self._marks(across)]
        for each in self.series:
            if each.drawn:
                parts += _curve(each, across, up, self.y_unit)
        label = html.escape(self.title)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
            f"{''.join(parts)}</svg>"
        )

    def _axes(self, across: Scale, up: Scale) -> list[str]:
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        parts = []
        for tick in up.ticks:
            y = bottom - up.place(tick)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            text = html.escape(show(tick, self.y_unit))
            parts.append(
                f'<text class="tick" x="{_LEFT - 5}" y="{y + 3.5:.1f}" {_END}>{text}</text>'
            )
        parts += self._labels_across(across)
        middle = (_LEFT + right) / 2
        name = html.escape(self.x)
        parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 6}" {_MIDDLE}>{name}</text>')
        return parts

    def _labels_across(self, across: Scale) -> list[str]:
        """The texts below the horizontal axis, from its end on, without any that would touch."""
        parts: list[str] = []
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        free = float(WIDTH)
        for tick in reversed(across.ticks):
            x, text = _LEFT + across.place(tick), show(tick, self.x_unit)
            is_last, width = x > right - 12, _CHARACTER * len(text)
            if (end := x if is_last else x + width / 2) > free:
                continue
            free = end - width - _CHARACTER
            anchor, escaped = _END if is_last else _MIDDLE, html.escape(text)
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" {anchor}>{escaped}</text>'
            )
        return parts

    def _marks(self, across: Scale) -> list[str]:
        parts = []
        for mark in self.marks:
            if across.low <= mark.at <= across.high:
                x = _LEFT + across.place(mark.at)
                parts.append(
                    f'<line class="mark {html.escape(mark.kind)}" x1="{x:.1f}" x2="{x:.1f}" '
                    f'y1="{_TOP}" y2="{HEIGHT - _BOTTOM}">'
                    f"<title>{html.escape(mark.text)}</title></line>"
                )
        return parts


def _curve(series: Series, across: Scale, up: Scale, unit: str) -> list[str]:
    points = thinned(series.drawn)
    places = [(_LEFT + across.place(x), HEIGHT - _BOTTOM - up.place(y)) for x, y in points]
    path = [f"M{places[0][0]:.1f} {places[0][1]:.1f}"]
    for x, y in places[1:]:
        path.append(f"H{x:.1f}V{y:.1f}" if series.are_steps else f"L{x:.1f} {y:.1f}")
    color = f"c{series.color % COLORS}"
    parts = [f'<path class="curve {color}" d="{"".join(path)}"/>']
    if series.has_dots or len(places) == 1:
        for (x, y), (_, value) in zip(places, points, strict=True):
            text = html.escape(f"{series.name}: {show(value, unit)}")
            parts.append(
                f'<circle class="dot {color}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                f"<title>{text}</title></circle>"
            )
    return parts


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """As many points as can be told apart: of more, the least and the largest of each stretch."""
    if len(points) <= most:
        return list(points)
    kept: list[Point] = []
    stretch = -(-len(points) * 2 // most)
    for first in range(0, len(points), stretch):
        part = points[first : first + stretch]
        ends = {min(part, key=lambda x: x[1]), max(part, key=lambda x: x[1])}
        kept += sorted(ends)
    return kept
