"""How a table without a vocabulary gets rows, and loses them."""

import dataclasses

from tfps.errors import UserError

LEAST_RECENT, LEAST_FREQUENT, NONE = "least_recent", "least_frequent", "none"
EVICT_FIRST = (LEAST_RECENT, LEAST_FREQUENT, NONE)
ZEROS, MEAN, TRAINED = "zeros", "mean", "trained"
UNKNOWN = (ZEROS, MEAN, TRAINED)
# Each value of the row that a ps gives a key without one, where the layer trains one for all of
# them. No update leaves it in a row: from a number, none gets there without making NaN of others.
NO_ROW = float("-inf")
# Occurrences are counted in a byte.
MOST_OCCURRENCES = 100


@dataclasses.dataclass(frozen=True)
class KeyOptions:
    """Which keys have a row, and for how long.

    Attributes:
        max_rows: Rows that the table has at most, over all ps; each ps has an equal share.
        forget_after: A key loses its row when it has not occurred in so many trained records; None
            for never.
        forget_after_hours: The same in hours; None for never.
        evict_first: Which rows make room where a new key needs one and there are `max_rows`: those
            that were used `least_recent` or `least_frequent`, or `none`, so that new keys have no
            row.
        min_norm: A row whose Euclidean norm an update has left below it is lost; 0 for none.
    """

    max_rows: int
    admit_after: int = 1
    forget_after: int | None = None
    forget_after_hours: float | None = None
    evict_first: str = LEAST_RECENT
    min_norm: float = 0.0
    unknown: str = ZEROS

    @property
    def counts(self) -> bool:
        """Whether it counts how often a key without a row has occurred."""
        return self.admit_after > 1

    @property
    def forgets(self) -> bool:
        """Whether rows are looked through for those that are to go."""
        ages = self.forget_after, self.forget_after_hours
        return any(age is not None for age in ages) or self.min_norm > 0

    @property
    def loses_rows(self) -> bool:
        """Whether a key that has a row may lose it."""
        return self.evict_first != NONE or self.forgets

    def check(self, layer: str) -> None:
        """Refuses options that are none."""
        if wrong := self._wrong_number() or self._wrong_choice():
            raise UserError(f"layer {layer!r}: {wrong}")

    def _wrong_number(self) -> str:
        if self.max_rows < 1:
            return f"max_rows={self.max_rows}: a table has at least one row"
        if not 1 <= self.admit_after <= MOST_OCCURRENCES:
            return f"admit_after={self.admit_after} does not lie between 1 and {MOST_OCCURRENCES}"
        if self.forget_after is not None and self.forget_after < 1:
            return f"forget_after={self.forget_after}: say after how many records, or None"
        if self.forget_after_hours is not None and self.forget_after_hours <= 0:
            return f"forget_after_hours={self.forget_after_hours}: say after how many, or None"
        return f"min_norm={self.min_norm} is below 0" if self.min_norm < 0 else ""

    def _wrong_choice(self) -> str:
        if self.evict_first not in EVICT_FIRST:
            return f"evict_first={self.evict_first!r} is not one of {', '.join(EVICT_FIRST)}"
        if self.unknown not in UNKNOWN:
            return f"unknown={self.unknown!r} is not one of {', '.join(UNKNOWN)}"
        if self.unknown == TRAINED and self.admit_after == 1 and self.evict_first != NONE:
            return (
                f"unknown={TRAINED!r}: with admit_after=1 each key has a row as soon as it is "
                "trained, so that no record would train that of unknown ones; say admit_after=2 or "
                "more"
            )
        return ""
