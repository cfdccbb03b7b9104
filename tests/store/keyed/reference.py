"""What a group of tables without vocabularies must be, in plain Python."""

import collections
import dataclasses
import itertools

import numpy as np

RATE, START, EPSILON = 0.1, 0.1, 1e-7  # of Adagrad
HALVED_ABOVE = 1 << 15  # occurrences of keys without a row, in the smallest sketch
MOST_COUNTED = 127


@dataclasses.dataclass
class Row:
    """What a key has.

    Attributes:
        values: `[dim]` float64.
        accumulator: That of Adagrad.
        last: How many updates there had been after its last one.
        uses: How many updates changed it.
        owner: A number that no other row ever had, nor this one before it was lost.
    """

    values: np.ndarray
    accumulator: np.ndarray
    last: int
    uses: int
    owner: int


class Reference:
    """Rows by table and key; it is told how many parts there are, and which of them has a key.

    Which of equally good rows are lost it does not say: it is told which there are, and checks that
    they are as many as must be, and that none went before one that was used less.

    Attributes:
        rows: By table and key.
        counts: By table, what has happened, by name.
    """

    def __init__(self, layout, initial):
        """Begins without keys.

        Args:
            layout: Says how many rows each table may have on a part, and which part has a key.
            initial: The initial rows, by table and key.
        """
        self.rows, self._initial = {}, initial
        self.counts = [
            dict.fromkeys(("admitted", "evicted", "forgotten", "refused", "dropped"), 0)
            for _ in layout.tables
        ]
        self._owners = itertools.count()
        self.begin(layout, {})

    def begin(self, layout, part_of):
        """Continues with other parts: rows stay, but nobody finds one that was pulled before."""
        self.layout, self._part_of = layout, part_of
        self._was_short = set()
        self._occurred, self._totals = {}, [0] * layout.parts
        for row in self.rows.values():
            row.owner = next(self._owners)

    def pull(self, asked, step, now):
        """Counts keys and gives them rows, as a pull for training.

        Args:
            asked: How often each is asked for, by table and key, in the order of the message.
            step: Number of updates so far.
            now: Tables and keys that have a row after it.
        """
        for part in range(self.layout.parts):
            mine = {each: n for each, n in asked.items() if self._part_of[each] == part}
            missing = [each for each in mine if each not in self.rows]
            if not missing:
                continue
            if self.layout.options.admit_after > 1:
                missing = self._often_enough(part, {each: mine[each] for each in missing})
            self._make_room(part, missing, now)
            self._admit(part, missing, step)
        assert self.rows.keys() == now

    def push(self, pulled, gradients, step):
        """Updates rows whose keys have them still.

        Args:
            pulled: By table and key, whose row was pulled; None where there was none.
            gradients: By table and key.
            step: Number of the update.
        """
        for each, owner in pulled.items():
            row = self.rows.get(each)
            if owner is None or row is None or row.owner != owner:
                self.counts[each[0]]["dropped"] += 1
            else:
                gradient = gradients[each].astype(np.float64)
                row.accumulator = row.accumulator + gradient**2
                row.values = row.values - RATE * gradient / np.sqrt(row.accumulator + EPSILON)
                row.last = max(row.last, step + 1)
                row.uses += 1

    def forget(self, least_update):
        """Takes rows from keys whose last update came before."""
        for each in [each for each, row in self.rows.items() if row.last < least_update]:
            del self.rows[each]
            self.counts[each[0]]["forgotten"] += 1

    def _often_enough(self, part, missing):
        for each, occurrences in missing.items():
            before = self._occurred.get(each, 0)
            self._occurred[each] = min(before + occurrences, MOST_COUNTED)
        seen = [each for each in missing if self._occurred[each] >= self.layout.options.admit_after]
        self._totals[part] += sum(missing.values())
        if self._totals[part] > HALVED_ABOVE:
            self._totals[part] = 0
            for each in self._occurred:
                if self._part_of[each] == part:
                    self._occurred[each] //= 2
        return seen

    def _of(self, part, table):
        return [each for each in self.rows if self._part_of[each] == part and each[0] == table]

    def _make_room(self, part, keys, now):
        if self.layout.options.evict_first == "none":
            return
        needed = collections.Counter(table for table, _ in keys)
        short = {
            table: len(self._of(part, table)) + needed[table] - quota
            for table, quota in enumerate(self.layout.quotas)
        }
        self._was_short |= {(part, table) for table, missing in short.items() if missing > 0}
        if max(short.values()) > 0:
            for table, missing in short.items():
                if (part, table) in self._was_short:
                    self._lose(part, table, missing, now)

    def _lose(self, part, table, missing, now):
        mine, quota = self._of(part, table), self.layout.quotas[table]
        field = {"least_recent": "last", "least_frequent": "uses"}
        score = field[self.layout.options.evict_first]
        gone = [each for each in mine if each not in now]
        assert len(gone) == min(max(missing + max(quota // 20, 1), 0), len(mine))
        left = [getattr(self.rows[each], score) for each in mine if each in now]
        if left and gone:
            assert max(getattr(self.rows[each], score) for each in gone) <= min(left)
        for each in gone:
            del self.rows[each]
        self.counts[table]["evicted"] += len(gone)

    def _admit(self, part, missing, step):
        tables = range(len(self.layout.tables))
        left = [self.layout.quotas[table] - len(self._of(part, table)) for table in tables]
        for each in missing:
            if left[each[0]] > 0:
                left[each[0]] -= 1
                values = self._initial[each].astype(np.float64)
                accumulator = np.full_like(values, START)
                self.rows[each] = Row(values, accumulator, step, 0, next(self._owners))
                self.counts[each[0]]["admitted"] += 1
            else:
                self.counts[each[0]]["refused"] += 1
