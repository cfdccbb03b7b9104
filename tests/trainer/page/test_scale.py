"""Axes that people can read."""

import pytest

from trainer.page.chart import BYTES, NUMBER, SECONDS, SHARE, Scale, show


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, NUMBER, "0"),
        (12_500, NUMBER, "12.5k"),
        (3e6, NUMBER, "3M"),
        (0.00012, NUMBER, "0.00012"),
        (-2500, NUMBER, "-2.5k"),
        (3 << 20, BYTES, "3 MiB"),
        (100, BYTES, "100 B"),
        (90, SECONDS, "1:30 min"),
        (59.96, SECONDS, "1 min"),
        (3599.7, SECONDS, "1 h"),
        (5430, SECONDS, "1:30 h"),
        (5, SECONDS, "5 s"),
        (2 * 86400, SECONDS, "2 d"),
        (1.5 * 86400, SECONDS, "1 d 12 h"),
        (0.125, SHARE, "12.5%"),
    ],
)
def test_values_are_written_short(value, unit, text):
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("low", "high", "unit", "ticks"),
    [
        (0.31, 0.69, NUMBER, (0.3, 0.4, 0.5, 0.6, 0.7)),
        (0, 95, NUMBER, (0, 20, 40, 60, 80, 100)),
        (0, 3000, SECONDS, (0, 600, 1200, 1800, 2400, 3000)),
        (0, 3 << 30, BYTES, (0, 1 << 30, 2 << 30, 3 << 30)),
        (0, 0, NUMBER, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    ],
)
def test_ticks_are_round_and_hold_all_values(low, high, unit, ticks):
    assert Scale.of(low, high, 100, unit).ticks == pytest.approx(ticks)


@pytest.mark.parametrize("unit", [NUMBER, BYTES, SECONDS, SHARE])
@pytest.mark.parametrize("high", [1e-6, 0.7, 1, 59, 1e3, 123_456, 9.9e6, 3.3e10])
def test_ticks_are_few_whatever_the_values(high, unit):
    scale = Scale.of(0, high, 100, unit)
    assert 2 <= len(scale.ticks) <= 8
    assert scale.low == 0
    assert scale.high >= high
    assert len({show(tick, unit) for tick in scale.ticks}) == len(scale.ticks)
    assert (scale.place(scale.low), scale.place(scale.high)) == (0, pytest.approx(100))
