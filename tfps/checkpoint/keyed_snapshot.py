"""A copy of the rows of tables without vocabularies, and how it is written."""

import concurrent.futures
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.store.keyed.group import KeyedGroup
from tfps.store.keyed.part import SavedKeys
from tfps.store.parameter_store import ParameterStore
from tfps.store.partitioned_variable import CHUNK_BYTES, save_now
from tfps.store.stored_row import StoredRow

_RESTS = 2.0  # times as long as a turn of writing took
HASH_BYTES = 8
RECORD_BYTES = HASH_BYTES + 3 * 4  # of a row, its values left out


class Pace:
    """Rests between the turns of a save, so that training has most of every core.

    Spread over three times as long, a save takes a third of cores and disk at any moment.
    """

    def __init__(self, spread_seconds: float):
        """Seconds after which a save rests no more; 0 for never to rest."""
        self._spread_seconds = spread_seconds
        self._is_waited_for = threading.Event()
        self._end = 0.0

    def begin(self) -> None:
        self._is_waited_for.clear()
        self._end = time.monotonic() + self._spread_seconds

    def hurry(self) -> None:
        """Ends a rest under way, and all later ones: somebody waits for the save."""
        self._is_waited_for.set()

    def rest(self, worked_seconds: float) -> None:
        left = self._end - time.monotonic()
        self._is_waited_for.wait(max(0.0, min(_RESTS * worked_seconds, left)))


def tensor_names(group: str) -> list[str]:
    """Names of the tensors that hold a group, or `changed_name` of it: those of `SavedKeys`.

    Rows of all ps stand end to end, and so in the order of their hashes.
    """
    return [f"{group}/{field}" for field in SavedKeys._fields]


def changed_name(group: str) -> str:
    """Prefix of the tensors with the rows of a group that an increment holds.

    The hashes of all keys have the same name as in a full checkpoint.
    """
    return f"{group}/changed"


def slice_specs(row: StoredRow, total: int, first: int, count: int) -> list[str]:
    """A run of rows of these tensors, for `tf.raw_ops.SaveV2` and `RestoreV2`."""
    run = f"{first},{count}"
    lines = f"{total} {row.lines} {row.width} {run}:-:-"
    return [f"{total} {run}", f"{total} 3 {run}:-", lines]


def rows_per_chunk(row: StoredRow) -> int:
    return max(1, CHUNK_BYTES // (row.bytes + RECORD_BYTES))


class _Written(NamedTuple):
    """Tensors whose rows belong together."""

    group: KeyedGroup
    names: list[str]
    parts: Sequence[Sequence[tf.Tensor]]


class KeyedSnapshot:
    """A copy of the rows that keys have, on their ps, while a checkpoint is written.

    It takes the memory of the rows once more; for an increment, that of the rows in it.
    """

    def __init__(self, store: ParameterStore, written: Sequence[_Written]):
        self._store = store
        self._written = written

    @classmethod
    def of(cls, store: ParameterStore, since: Mapping[str, int]) -> "KeyedSnapshot | None":
        """A copy of what a store holds now; None if each of its tables has a vocabulary.

        Of a group in `since` it holds the rows that changed after so many updates, and the hashes
        of all keys: a key that is not among them has lost its row.
        """
        if not store.keyed_groups:
            return None
        parts = range(len(store.devices))
        written = []
        with concurrent.futures.ThreadPoolExecutor(len(parts), "snapshot") as pool:
            for group in store.keyed_groups:
                name = group.layout.name
                if name not in since:
                    saved = list(pool.map(group.save, parts))
                    written.append(_Written(group, tensor_names(name), saved))
                    continue
                late = list(pool.map(group.save_since, parts, itertools.repeat(since[name])))
                hashes = [[every] for every, _ in late]
                written.append(_Written(group, tensor_names(name)[:1], hashes))
                changed = [rows for _, rows in late]
                written.append(_Written(group, tensor_names(changed_name(name)), changed))
        return cls(store, written)

    def write(self, prefix: str, pace: Pace) -> list[str]:
        """Writes it, all ps at the same time."""
        parts = range(len(self._store.devices))
        with concurrent.futures.ThreadPoolExecutor(len(parts), "save") as pool:
            written = pool.map(lambda part: self._write_part(prefix, part, pace), parts)
            return list(itertools.chain.from_iterable(written))

    def _write_part(self, prefix: str, part: int, pace: Pace) -> list[str]:
        prefixes = []
        with tf.device(self._store.devices[part]):
            for index, written in enumerate(self._written):
                prefixes += _write_rows(f"{prefix}.keys-{index}-{part}", written, part, pace)
        return prefixes


def _write_rows(prefix: str, written: _Written, part: int, pace: Pace) -> list[str]:
    """Writes the rows of a ps chunk by chunk; called under its device."""
    row = written.group.row
    sizes = [int(tensors[0].shape[0]) for tensors in written.parts]
    before, total = sum(sizes[:part]), sum(sizes)
    stride = rows_per_chunk(row)
    prefixes: list[str] = []
    worked = 0.0
    for first in range(0, sizes[part], stride):
        if prefixes:
            pace.rest(worked)
        count = min(stride, sizes[part] - first)
        specs = slice_specs(row, total, before + first, count)
        prefixes.append(f"{prefix}-{first}")
        began = time.monotonic()
        rows = [each[first : first + count] for each in written.parts[part]]
        save_now(prefixes[-1], written.names, specs[: len(written.names)], rows)
        worked = time.monotonic() - began
    return prefixes
