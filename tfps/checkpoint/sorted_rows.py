"""Rows in a checkpoint's files that stand in the order of their hashes, and the search for one."""

import contextlib
import posixpath
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfps.checkpoint.checkpoint import PREFIX, Checkpoint
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.checkpoint.keyed_snapshot import rows_per_chunk, slice_specs, tensor_names
from tfps.checkpoint.reader import explained, of_base
from tfps.store.keyed.part import SavedKeys
from tfps.store.stored_row import StoredRow

_CHIEF = "/device:CPU:0"
# Hashes that a search reads at once. Hashes are evenly spread, so that of up to 10^9 the first look
# is where the one is that is looked for.
_WINDOW = 1 << 16


class SortedRows:
    """Rows of a group, or its hashes alone, as one checkpoint's files hold them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        row: StoredRow,
        name: str,
        is_of_base: bool = False,
    ):
        self._base = checkpoint.base.name if is_of_base and checkpoint.increment else None
        directory = checkpoint.base_path if is_of_base else checkpoint.path
        self._prefix = posixpath.join(directory, PREFIX)
        self._names = tensor_names(name)
        self._row = row
        self._dtypes = tf.int64, tf.int32, tf.as_dtype(row.dtype)
        self._stride = rows_per_chunk(row)
        with self._explained(_CHIEF):
            shapes = tf.train.load_checkpoint(self._prefix).get_variable_to_shape_map()
        # Of no rows nothing is written.
        self.total = int(shapes.get(self._names[0], [0])[0])

    def runs(self, first: int, end: int) -> list[tuple[int, int]]:
        """First row and number of rows of each run in which rows are read.

        Args:
            end: The one after the last.
        """
        starts = range(first, end, self._stride)
        return [(start, min(self._stride, end - start)) for start in starts]

    def read(self, device: str, first: int, count: int) -> SavedKeys:
        """Reads a run of rows."""
        return SavedKeys(*self._read(device, first, count, len(self._names)))

    def read_hashes(self, device: str, first: int, count: int) -> tf.Tensor:
        """Reads the hashes of a run of rows, `[count]` int64."""
        [hashes] = self._read(device, first, count, 1)
        return hashes

    def find(self, value: int, *, is_after: bool = False) -> int:
        """The number of the first row whose hash is not below another.

        Args:
            value: The other, as int64.
            is_after: Whether its hash must be above the other.
        """
        first, end = 0, self.total
        guess = (value + (1 << 63)) * self.total >> 64
        while first < end:
            count = min(_WINDOW, end - first)
            begin = min(max(first, guess - count // 2), end - count)
            hashes = np.asarray(self.read_hashes(_CHIEF, begin, count).numpy())
            place = int(np.searchsorted(hashes, value, "right" if is_after else "left"))
            if 0 < place < count:
                return begin + place
            first, end = (first, begin) if place == 0 else (begin + count, end)
            guess = (first + end) // 2
        return first

    def _read(self, device: str, first: int, count: int, fields: int) -> list[tf.Tensor]:
        """Reads a run of the first few tensors."""
        with self._explained(device), tf.device(device):
            return list(
                tf.raw_ops.RestoreV2(
                    prefix=self._prefix,
                    tensor_names=self._names[:fields],
                    shape_and_slices=slice_specs(self._row, self.total, first, count)[:fields],
                    dtypes=self._dtypes[:fields],
                )
            )

    @contextlib.contextmanager
    def _explained(self, device: str) -> Iterator[None]:
        try:
            with explained(device, self._prefix):
                yield
        except DamagedCheckpointError as damage:
            raise (of_base(self._base, damage) if self._base else damage) from None
