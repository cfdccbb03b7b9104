"""Several batches that are pulled at once, and whose gradients are pushed at once."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.optimizers.update_rule import Tensors
from tfps.store.group_layout import AskedIds
from tfps.store.messages import (
    Gradients,
    Note,
    Pulled,
    PulledRows,
    SentRows,
    Writes,
    bits_of,
    numbers_of,
    size_of_bits,
)
from tfps.store.parameter_store import ParameterStore

# Gradients of a batch: dense ones in pieces by ps, of rows by group and ps.
Sent = tuple[list[list[tf.Tensor]], list[list[SentRows]]]


class BatchRun:
    """What a worker exchanges with the ps for a few batches: one pull, and one push.

    A ps makes an update for each batch, one after the other. Gradients of the batches stay apart,
    so every update is what it would be of a batch pulled by itself: clipped, scaled by its own
    staleness, of any optimizer. The row numbers of each batch travel with the gradients.
    """

    def __init__(self, store: ParameterStore, lookups: Sequence[Sequence[Lookup]]):
        self._store = store
        groups = range(len(store.groups))
        found = [store.finder.find(some) for some in lookups]
        joint = [
            store.groups[k].find(AskedIds(tf.concat([of_batch[k].ids for of_batch in found], 0)))
            for k in groups
        ]
        dense, rows = store.exchange.pull(joint)
        state, versions = store.state.pull(), store.update_counts.pull()
        each = [self._each(rows[k], [of_batch[k] for of_batch in found]) for k in groups]
        self.pulled = [
            Pulled(dense, state, [of_group[b] for of_group in each], list(some), versions, None)
            for b, some in enumerate(lookups)
        ]

    def arrived(self) -> list[tf.Tensor]:
        """Tensors that exist once the pull has arrived, and with it every earlier push."""
        first = self.pulled[0]
        return [*first.dense[:1], *(group.rows for group in first.groups)]

    def push(self, batches: Sequence[Gradients], note: Note | None = None) -> Writes:
        store, writes = self._store, []
        if store.state.changes:
            added = None
            for batch in batches:
                added = store.state.increment(batch.pulled.state, batch.state, added)
            share = store.share_of_state(batches[0].pulled)
            writes.append(store.state.push(added, len(batches), share))
        sent = [self._sent(batch) for batch in batches]
        for part, device in enumerate(store.devices):
            mine = note if note and part == 0 else None
            packed = self._packed(part, sent, mine)
            with tf.device(device):
                arrived = [tf.identity(each) for each in packed]
                writes += self._applied(part, arrived, len(batches), mine)
        return writes

    @staticmethod
    def _each(joint: PulledRows, found: Sequence[PulledRows]) -> list[PulledRows]:
        places = tf.split(joint.inverse, tf.stack([tf.size(some.ids) for some in found]))
        return [
            some._replace(rows=tf.gather(joint.rows, places_of))
            for some, places_of in zip(found, places, strict=True)
        ]

    def _sent(self, batch: Gradients) -> Sent:
        store, groups = self._store, batch.pulled.groups
        summed = store.sum_by_row(groups, batch.rows)
        dense, summed = store.clipping.clip(batch.dense, summed, groups)
        rows = [
            group.send(some, gradient)
            for group, some, gradient in zip(store.groups, groups, summed, strict=True)
        ]
        return store.dense.pieces(dense), rows

    def _packed(self, part: int, sent: Sequence[Sent], note: Note | None) -> list[tf.Tensor]:
        """What goes to one ps: gradients of rows, dense ones, row numbers, their counts, a note."""
        dtype = tf.as_dtype(self._store.wire.dtype)
        rows = [of_group[part] for _, groups in sent for of_group in groups]
        dense = [pieces[part] for pieces, _ in sent if pieces]
        sizes = [tf.size(each.rows) for each in rows]
        counts = tf.cast(tf.stack(sizes), tf.float64) if rows else tf.zeros([0], tf.float64)
        numbers = tf.concat([counts, note.numbers], 0) if note else counts
        return self._store.packing.pack(
            [
                *([each.gradient] for each in rows),
                *dense,
                *([bits_of(each.rows, dtype)] for each in rows),
                [bits_of(numbers, dtype)],
            ]
        )

    def _applied(self, part: int, arrived: Tensors, batches: int, note: Note | None) -> Writes:
        """Makes the updates of a ps from what has arrived there; under its device."""
        store, dtype = self._store, tf.as_dtype(self._store.wire.dtype)
        groups = len(store.groups)
        noted = note.numbers.shape[0] if note else 0
        bits = size_of_bits(batches * groups + noted, tf.float64, dtype)
        numbers = numbers_of(store.packing.last(arrived, bits), tf.float64)
        values, dense, rows = self._parts(part, arrived, numbers[: batches * groups], batches, bits)
        applied: Writes = []
        for batch in range(batches):
            mine = slice(batch * groups, (batch + 1) * groups)
            sent = [SentRows(*pair) for pair in zip(rows[mine], values[mine], strict=True)]
            versions = self.pulled[batch].versions
            with tf.control_dependencies([*arrived, *applied]):
                step = store.update_counts.add(part, [*arrived, *applied], versions)
                scale = store.update_counts.rate_scale(part, step, versions)
                applied = store.apply(part, dense[batch : batch + 1], sent, step, scale)
        if note:
            with tf.control_dependencies(applied):
                note.deliver(numbers[batches * groups :])
        return applied

    def _parts(
        self, part: int, arrived: Tensors, counts: tf.Tensor, batches: int, bits: int
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """Gradients of rows, of dense parameters, and numbers of rows, by batch and group."""
        store, dtype = self._store, tf.as_dtype(self._store.wire.dtype)
        widths = [group.gradients.width for group in store.groups] * batches
        each = tf.unstack(tf.cast(counts, tf.int32), len(widths))
        first, end = store.layout.dense.bounds(part)
        of_dense = [end - first] * (batches if store.layout.dense.total else 0)
        id_dtypes = [tf.as_dtype(group.layout.id_dtype) for group in store.groups] * batches
        sizes = [
            *(count * width for count, width in zip(each, widths, strict=True)),
            *of_dense,
            *(size_of_bits(n, of, dtype) for n, of in zip(each, id_dtypes, strict=True)),
            bits,
        ]
        parts = store.packing.unpack(arrived, sizes)
        values, rows = parts[: len(widths)], parts[len(widths) + len(of_dense) : -1]
        return (
            [tf.reshape(x, [-1, width]) for x, width in zip(values, widths, strict=True)],
            parts[len(widths) :][: len(of_dense)],
            [numbers_of(x, of) for x, of in zip(rows, id_dtypes, strict=True)],
        )
