import datetime
import math

import numpy as np
import pytest
import tensorflow as tf

from tfps.layers.date_parts import DateParts, days_since_1970

EPOCH = datetime.date(1970, 1, 1)


@pytest.mark.parametrize("year", [1600, 1900, 1969, 1970, 2000, 2023, 2024, 2100])
def test_days_are_those_of_the_calendar(year: int) -> None:
    for month in range(1, 13):
        for day in (1, 28):
            expected = (datetime.date(year, month, day) - EPOCH).days
            assert days_since_1970(year, month, day) == expected
    assert days_since_1970(2024, 2, 29) == days_since_1970(2024, 3, 1) - 1


@pytest.mark.parametrize(
    ("text", "date", "hour"),
    [
        ("2024-12-31 23:59:00", datetime.date(2024, 12, 31), 23),
        ("2024/02/29T06:00:00.123+01:00", datetime.date(2024, 2, 29), 6),
        ("1969-07-20", datetime.date(1969, 7, 20), 0),
        ("2025-06-01 morning", datetime.date(2025, 6, 1), 0),
    ],
)
def test_a_date_is_taken_apart(text: str, date: datetime.date, hour: int) -> None:
    first, last = 10_000, 20_000
    [found] = DateParts(first, last)(tf.constant([text])).numpy()
    days = (date - EPOCH).days
    turns = (date.timetuple().tm_yday - 1) / 365.2425, hour / 24
    circles = [f(2 * math.pi * turn) for turn in turns for f in (math.sin, math.cos)]
    weekday = [float(k == date.weekday()) for k in range(7)]
    expected = [1.0, (days - first) / (last - first), *circles, *weekday]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_is_no_date_is_zeros() -> None:
    found = DateParts()(tf.constant(["", "yesterday", "01.02.2024", "2024-1-2", "20240102"]))
    np.testing.assert_array_equal(found, np.zeros((5, 13)))
