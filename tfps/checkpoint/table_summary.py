"""What can be said of each table in a checkpoint: how large its rows are, which are used most."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.keyed_rows import SavedKeyedGroup
from tfps.checkpoint.saved_values import SavedGroup
from tfps.store.keyed.hashing import keys_of_array
from tfps.store.stored_row import StoredRow

_DROPPED_BITS = 12  # of a float32's mantissa: norms are told apart by the 2,048th part
_BINS = 1 << (31 - _DROPPED_BITS)


class UsedKey(NamedTuple):
    """A key of a table without a vocabulary, and its row.

    Attributes:
        key: As the layer was called with it; of a string, the 63 bits that it is known by.
        last_update: How many updates there had been after the last of them.
    """

    key: int
    uses: int
    last_update: int
    norm: float


class Norms:
    """Euclidean lengths of rows, of which the number in each of 2^19 intervals is kept.

    Attributes:
        least: The least one, 0 where there is none.
    """

    def __init__(self) -> None:
        self.count, self.least, self.greatest = 0, 0.0, 0.0
        self._bins = np.zeros([_BINS], np.int64)

    def add(self, norms: np.ndarray) -> None:
        """Adds some, `[n]` float32."""
        if not len(norms):
            return
        least, greatest = float(norms.min()), float(norms.max())
        self.least = min(self.least, least) if self.count else least
        self.greatest = max(self.greatest, greatest)
        self.count += len(norms)
        # Numbers that are not negative are in the order of their bits.
        bins, counts = np.unique(norms.view(np.uint32) >> _DROPPED_BITS, return_counts=True)
        self._bins[bins] += counts

    @property
    def median(self) -> float:
        """The one in the middle, within the 2,048th part of it."""
        if not self.count:
            return 0.0
        middle = int(np.searchsorted(np.cumsum(self._bins), (self.count + 1) // 2))
        lower = np.array([middle << _DROPPED_BITS], np.uint32).view(np.float32)[0]
        return min(max(float(lower), self.least), self.greatest)


@dataclasses.dataclass
class TableSummary:
    """A table in a checkpoint.

    Attributes:
        last_updates: How many updates there had been after a row's last one, the least and the
            greatest; None where it is not kept.
    """

    name: str
    row: StoredRow
    has_keys: bool
    norms: Norms = dataclasses.field(default_factory=Norms)
    last_updates: tuple[int, int] | None = None
    most_used: list[UsedKey] = dataclasses.field(default_factory=list)

    def add(self, rows: np.ndarray, last_updates: np.ndarray | None) -> np.ndarray:
        """Adds some rows.

        Args:
            rows: `[n, dim]` float32.
            last_updates: Of each, `[n]` int32; None where it is not kept.

        Returns:
            Their norms, `[n]` float32.
        """
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)
        self.norms.add(norms)
        if last_updates is not None and len(last_updates):
            least, greatest = int(last_updates.min()), int(last_updates.max())
            before = self.last_updates or (least, greatest)
            self.last_updates = min(before[0], least), max(before[1], greatest)
        return norms

    def add_used(self, used: Sequence[UsedKey], count: int) -> None:
        """Adds keys, of which only those stay that are used most."""
        both = sorted([*self.most_used, *used], key=lambda each: (-each.uses, each.key))
        self.most_used = both[:count]


def summaries(checkpoint: Checkpoint, most_used: int) -> list[TableSummary]:
    """Reads all tables, a chunk of rows after the other."""
    found = {each.name: each for each in _with_ids(checkpoint)}
    found |= {each.name: each for each in _with_keys(checkpoint, most_used)}
    return [found[name] for name in checkpoint.signature["tables"]]


def _with_ids(checkpoint: Checkpoint) -> Iterator[TableSummary]:
    for group in SavedGroup.all_in(checkpoint):
        mine = {name: TableSummary(name, group.row, has_keys=False) for name in group.tables}
        for rows in group.read(checkpoint, group.tables):
            mine[rows.table].add(rows.lines[:, : group.row.dim], rows.last_updates)
        yield from mine.values()


def _with_keys(checkpoint: Checkpoint, most_used: int) -> Iterator[TableSummary]:
    for group in SavedKeyedGroup.all_in(checkpoint):
        layout = group.layout
        mine = [TableSummary(name, group.row, has_keys=True) for name in group.tables]
        for run in group.read(checkpoint):
            hashes, records = run.hashes.numpy(), run.records.numpy()
            rows = group.row.decode([run.lines[:, 0]])[0].numpy()
            for member, summary in enumerate(mine):
                of_table = np.flatnonzero(records[:, 0] == member)
                last, uses = records[of_table, 1], records[of_table, 2]
                norms = summary.add(rows[of_table], last)
                most = np.argsort(-uses, kind="stable")[:most_used]
                keys = keys_of_array(hashes[of_table[most]], layout.salts[member])
                columns = keys.tolist(), uses[most].tolist(), last[most].tolist()
                used = zip(*columns, norms[most].tolist(), strict=True)
                summary.add_used([UsedKey(*each) for each in used], most_used)
        yield from mine
