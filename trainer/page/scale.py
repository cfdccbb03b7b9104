"""Axes: where their ticks are, and how values are written beside them."""

import dataclasses
import math

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


def show(value: float, unit: str = NUMBER) -> str:
    """A value as people read it, such as 12.5k, 3 MiB, 1:30 h or 20%.

    Args:
        unit: What it counts: `NUMBER`, `BYTES`, `SECONDS` or `SHARE`.
    """
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
        """The scale that holds two values between round ones.

        Args:
            unit: What the values count, as of `show`: of bytes and time other numbers are round.
        """
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
        return next((x for x in _ROUND_SECONDS if x >= least), None) or _DAY * _decimal_step(days)
    if unit == BYTES and least >= 1024:
        return 2.0 ** math.ceil(math.log2(least))
    return _decimal_step(least)


def _decimal_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= least * (1 - 1e-9))
