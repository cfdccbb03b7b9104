"""What a column of text cells holds: counted in parts, in bounded memory, and put together."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cloud import optional_imports
from tfps.data.named_columns import NO_NUMBER, SEPARATOR

EXACT = 4096  # distinct values that are counted one by one; of more, sketches estimate
_LOG_DISTINCT = 12  # registers of HyperLogLog, as a logarithm: 1.6 % standard error
_LOG_FREQUENT = 14  # values that the sketch of frequent ones holds, as a logarithm
_QUANTILE_K = 200  # places that are right within 1.3 % of the rows
_TEXT_WORDS = 3.0  # that a text has on average
_DATE = re.compile(r"\d{4}[-/]\d{2}[-/]\d{2}(?:[ T].*)?$")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
_ZERO_LED = re.compile(r"[+-]?0\d")
_INTEGER = re.compile(r"[+-]?\d{1,18}$")
_PUNCTUATION = re.compile(r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']")  # Keras's own


def sketches() -> Any:
    return optional_imports.load("datasketches", "analyze")


def words_of(text: str) -> list[str]:
    """The words of a text, as `keras.layers.TextVectorization` makes them."""
    lower = text.encode().lower().decode()  # of ASCII alone
    return _PUNCTUATION.sub("", lower).split()


class Frequencies:
    """How often each value occurs; of more than `EXACT` values, estimates."""

    def __init__(self) -> None:
        self.exact: collections.Counter[str] | None = collections.Counter()
        self._distinct: Any = None
        self._frequent: Any = None

    def __getstate__(self) -> tuple[Any, ...]:
        if self.exact is not None:
            return (self.exact,)
        return None, self._distinct.get_result().serialize_compact(), self._frequent.serialize()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.exact, *stored = state
        self._distinct = self._frequent = None
        if stored:
            self._distinct = sketches().hll_union(_LOG_DISTINCT)
            self._distinct.update(sketches().hll_sketch.deserialize(stored[0]))
            self._frequent = sketches().frequent_strings_sketch.deserialize(stored[1])

    @property
    def distinct(self) -> int:
        return len(self.exact) if self.exact is not None else round(self._distinct.get_estimate())

    def most(self, count: int) -> list[tuple[str, int]]:
        """The most frequent values; their counts are lower bounds where they are not exact."""
        if self.exact is not None:
            return sorted(self.exact.items(), key=lambda each: (-each[1], each[0]))[:count]
        kind = sketches().frequent_items_error_type.NO_FALSE_POSITIVES
        found = self._frequent.get_frequent_items(kind)
        return [(value, int(lower)) for value, _, lower, _ in found[:count]]

    def add(self, counts: Mapping[str, int]) -> None:
        if self.exact is not None:
            self.exact.update(counts)
            if len(self.exact) > EXACT:
                self._estimate()
            return
        held = sketches().hll_sketch(_LOG_DISTINCT)
        for value, count in counts.items():
            held.update(value)
            self._frequent.update(value, count)
        self._distinct.update(held)

    def merge(self, other: Self) -> None:
        if other.exact is not None:
            self.add(other.exact)
            return
        if self.exact is not None:
            self._estimate()
        self._distinct.update(other._distinct.get_result())
        self._frequent.merge(other._frequent)

    def _estimate(self) -> None:
        counts, self.exact = self.exact, None
        self._distinct = sketches().hll_union(_LOG_DISTINCT)
        self._frequent = sketches().frequent_strings_sketch(_LOG_FREQUENT)
        self.add(counts or {})


@dataclasses.dataclass
class Moments:
    """Count, mean and sum of squared deviations, put together as Chan et al. (1979) do."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Self:
        count = int(counts.sum())
        mean = float(np.average(values, weights=counts)) if count else 0.0
        return cls(count, mean, float((counts * (values - mean) ** 2).sum()))

    @property
    def variance(self) -> float:
        return self.squares / self.count if self.count else 0.0

    def merge(self, other: Self) -> None:
        count = self.count + other.count
        if not count:
            return
        apart = other.mean - self.mean
        self.squares += other.squares + apart**2 * self.count * other.count / count
        self.mean += apart * other.count / count
        self.count = count


class Numbers:
    """The numbers of a column."""

    def __init__(self) -> None:
        self.moments, self.log_moments = Moments(), Moments()
        self.least, self.most = math.inf, -math.inf
        self._quantiles = sketches().kll_doubles_sketch(_QUANTILE_K)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_quantiles": self._quantiles.serialize()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._quantiles = sketches().kll_doubles_sketch.deserialize(state["_quantiles"])

    def add(self, values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> None:
        if not len(values):
            return
        self.moments.merge(Moments.of(values, counts))
        logarithms = np.sign(values) * np.log1p(np.abs(values))
        self.log_moments.merge(Moments.of(logarithms, counts))
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        self._quantiles.update(np.repeat(values, counts))

    def merge(self, other: Self) -> None:
        self.moments.merge(other.moments)
        self.log_moments.merge(other.log_moments)
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self._quantiles.merge(other._quantiles)

    def quantile(self, share: float) -> float:
        return float(self._quantiles.get_quantile(share))

    def shares(self, edges: Sequence[float]) -> list[float]:
        """Shares of the numbers below the first edge, between two, and from the last on."""
        return list(map(float, self._quantiles.get_pmf(list(edges))))


class ColumnSummary:
    """A column's cells: how many are missing or of a kind, and how they are distributed.

    A cell can be of several kinds: an integer is a number as well.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = self.empty = self.no_number = 0
        self.numeric = self.integers = self.zero_led = self.dates = self.lists = self.words = 0
        self.frequencies = Frequencies()
        self.parts = Frequencies()  # of lists
        self.vocabulary = Frequencies()  # words, where cells are texts
        self.numbers = Numbers()
        self.first_date, self.last_date = "9", ""

    def add(self, cells: Iterable[str]) -> None:
        counts = collections.Counter(cells)
        self.rows += counts.total()
        self.empty += counts.pop("", 0)
        self.no_number += sum(counts.get(token, 0) for token in NO_NUMBER)
        self.frequencies.add(counts)
        numbers = self._numbers(counts)
        for text, count in counts.items():
            if _INTEGER.match(text):
                self.integers += count
                self.zero_led += count * bool(_ZERO_LED.match(text))
        self.numbers.add(
            np.array([value for value, _ in numbers], np.float64),
            np.array([count for _, count in numbers], np.int64),
        )
        if len(numbers) < len(counts):
            self._add_texts(counts)

    def _numbers(self, counts: Mapping[str, int]) -> list[tuple[float, int]]:
        """The finite numbers among the values."""
        found = []
        for text, count in counts.items():
            try:
                value = float(text)
            except ValueError:
                continue
            if math.isfinite(value):
                found.append((value, count))
        self.numeric += sum(count for _, count in found)
        return found

    def _add_texts(self, counts: Mapping[str, int]) -> None:
        words, parts = collections.Counter[str](), collections.Counter[str]()
        for text, count in counts.items():
            if _DATE.match(text):
                self.dates += count
                self.first_date = min(self.first_date, text[:10])
                self.last_date = max(self.last_date, text[:10])
            if SEPARATOR in text:
                self.lists += count
            for part in text.split(SEPARATOR):
                parts[part.strip()] += count
            for word in words_of(text):
                words[word] += count
        self.parts.add(parts)
        self.words += words.total()
        if words.total() >= _TEXT_WORDS * sum(counts.values()):
            self.vocabulary.add(words)

    def merge(self, other: Self) -> None:
        self.rows += other.rows
        self.empty += other.empty
        self.no_number += other.no_number
        self.numeric += other.numeric
        self.integers += other.integers
        self.zero_led += other.zero_led
        self.dates += other.dates
        self.lists += other.lists
        self.words += other.words
        self.frequencies.merge(other.frequencies)
        self.parts.merge(other.parts)
        self.vocabulary.merge(other.vocabulary)
        self.numbers.merge(other.numbers)
        self.first_date = min(self.first_date, other.first_date)
        self.last_date = max(self.last_date, other.last_date)

    @property
    def held(self) -> int:
        """Cells that are not empty."""
        return self.rows - self.empty

    @property
    def distinct(self) -> int:
        """Different values, at most one per cell."""
        return min(self.held, self.frequencies.distinct)

    @property
    def is_text(self) -> bool:
        return self.held > 0 and self.words >= _TEXT_WORDS * self.held
