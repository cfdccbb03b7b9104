"""Columns summed up in parts are as those summed up at once, and estimates are near."""

import pickle

import numpy as np
import pytest

from trainer.table.column_summary import EXACT, ColumnSummary


def summed(*parts: list[str]) -> ColumnSummary:
    """The parts' summaries put together, each as another process sends it."""
    first, *others = (ColumnSummary("x") for _ in parts)
    for summary, part in zip((first, *others), parts, strict=True):
        summary.add(part)
    for other in others:
        first.merge(pickle.loads(pickle.dumps(other)))
    return first


def test_numbers_are_summed_up() -> None:
    values = np.random.default_rng(0).lognormal(2, 1, 6000).round(2)
    cells = [*map(str, values), "", "NA", "x"]
    found = summed(cells[:10], cells[10:4000], cells[4000:])
    numbers = found.numbers
    assert (found.rows, found.empty, found.no_number, found.numeric) == (6003, 1, 1, 6000)
    assert (numbers.least, numbers.most) == (values.min(), values.max())
    assert numbers.moments.mean == pytest.approx(values.mean(), rel=1e-12)
    assert numbers.moments.variance == pytest.approx(values.var(), rel=1e-9)
    assert numbers.log_moments.mean == pytest.approx(np.log1p(values).mean(), rel=1e-12)
    below = (values <= numbers.quantile(0.5)).mean()
    assert abs(below - 0.5) < 0.03


def test_distinct_values_are_exact_up_to_a_limit_and_then_estimated() -> None:
    few = summed(["a"] * 3 + ["b"], ["b", "c"])
    assert few.frequencies.exact == {"a": 3, "b": 2, "c": 1}
    assert few.frequencies.most(2) == [("a", 3), ("b", 2)]
    parts = [[f"v{number}" for number in range(start, start + 30_000)] for start in (0, 20_000)]
    many = summed([*parts[0], *["Köln"] * 5000], parts[1], ["Köln"] * 5000)
    assert many.frequencies.exact is None
    assert many.distinct == pytest.approx(50_001, rel=0.05)
    [(value, count)] = many.frequencies.most(1)
    assert value == "Köln"
    assert 8000 < count <= 10_000


@pytest.mark.parametrize("sizes", [(EXACT, 1), (1, EXACT), (EXACT + 1, 1), (1, EXACT + 1)])
def test_parts_of_any_size_go_together(sizes: tuple[int, int]) -> None:
    numbered = [[f"{part}-{number}" for number in range(size)] for part, size in enumerate(sizes)]
    found = summed(*numbered)
    assert found.frequencies.exact is None
    assert found.distinct == pytest.approx(sum(sizes), rel=0.05)


def test_dates_lists_words_and_codes_are_counted() -> None:
    found = summed(["2024-03-01", "2023-12-31 10:00", "", "2025-01-01T00:00:00Z"], ["soon"])
    assert (found.dates, found.held) == (3, 4)
    assert (found.first_date, found.last_date) == ("2023-12-31", "2025-01-01")
    found = summed(["a|b", "b"], ["c |a", "d"])
    assert found.lists == 2
    assert found.parts.exact == {"a": 2, "b": 2, "c": 1, "d": 1}
    found = summed(["The red, red FOX!", "a fox and Übermut"])
    assert found.is_text
    assert found.vocabulary.exact is not None
    assert found.vocabulary.exact["fox"] == found.vocabulary.exact["red"] == 2
    assert summed(["0123", "7"]).zero_led == 1
    assert summed(["0", "-0", "10"]).zero_led == 0
