"""The gradients that workers send for a round, on the ps until it closes."""

from typing import NamedTuple

import tensorflow as tf

from tfps.barrier.messages import ATTEMPT, MEMBER, ROUND, TOKEN_FIELDS, new_queue
from tfps.store.exchange import Push
from tfps.store.messages import Gradients, Note, PartGradients, RowGradients, SentRows
from tfps.store.parameter_store import ParameterStore


class Decision(NamedTuple):
    """What a round takes on one ps.

    By member: the attempt that may contribute, `[members]` int64, and the weight of its
    contribution in the mean, `[members]` float32, 0 for none.
    """

    round: tf.Tensor
    attempts: tf.Tensor
    weights: tf.Tensor


class _Sent(NamedTuple):
    """Contributions on one ps: their pull token, dense gradient and state change `[n]`."""

    token: tf.Tensor
    dense: list[tf.Tensor]
    groups: list[SentRows]
    state: list[tf.Tensor]


class _TakenRows(NamedTuple):
    """By contribution: rows `[u]` in the ps's part, gradients `[u, width]`, weights `[u]`."""

    rows: tf.TensorArray
    gradients: tf.TensorArray
    weights: tf.TensorArray

    @classmethod
    def none(cls, spec: SentRows) -> "_TakenRows":
        kinds = [
            (spec.rows.dtype, spec.rows.shape),
            (tf.float32, spec.gradient.shape),
            (tf.float32, spec.rows.shape),
        ]
        return cls(
            *(
                tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False, element_shape=shape)
                for dtype, shape in kinds
            )
        )

    def append(self, sent: SentRows, weight: tf.Tensor) -> "_TakenRows":
        """Appends a contribution's rows; none of one without weight."""
        kept = tf.where(weight > 0, tf.size(sent.rows), 0)
        gradient = tf.cast(sent.gradient[:kept], tf.float32)
        values = sent.rows[:kept], gradient, tf.fill([kept], weight)
        return _TakenRows(
            *(array.write(array.size(), x) for array, x in zip(self, values, strict=True))
        )

    def sum(self, kind: RowGradients) -> SentRows:
        """The mean gradient of each distinct row."""
        rows, gradients, weights = (array.concat() for array in self)
        distinct, row = tf.unique(rows)
        # Weighted while they are added up: the last one who arrives waits for nothing else.
        return SentRows(distinct, kind.sum(gradients, row, tf.size(distinct), weights))


class Contributions:
    """A queue on each ps of what members sent to a round.

    The order of arrival does not matter. When a round closes, contributions that it does not take
    are dropped. The rest of a contribution that is still being sent names a round that never opens
    again, so the next round drops it.
    """

    def __init__(self, store: ParameterStore, capacity: int):
        self._store = store
        self._queues = []
        for part, device in enumerate(store.devices):
            dtypes = [spec.dtype for spec in tf.nest.flatten(self._specs(part))]
            with tf.device(device):
                self._queues.append(new_queue(capacity, dtypes))

    def send(
        self, token: tf.Tensor, gradients: Gradients, trained: tf.Tensor
    ) -> tuple[list[tf.Tensor | tf.Operation], tf.Tensor]:
        """Queues gradients; each ps's operation and, from the first, `trained` `[n]` float64."""
        store, pulled = self._store, gradients.pulled
        change = store.change_of_state(pulled.state, gradients.state)
        told: list[tf.Tensor] = []

        def enqueue(part: int, push: Push) -> list[tf.Tensor | tf.Operation]:
            state = [change] if change is not None and self._has_state(part) else []
            sent = _Sent(tf.identity(token), push.dense, push.rows, state)
            return [self._queues[part].enqueue(tf.nest.flatten(sent))]

        summed = store.sum_by_row(pulled.groups, gradients.rows)
        note = Note(trained, told.append)
        queued = store.exchange.push(pulled.groups, summed, gradients.dense, note, enqueue)
        return queued, told[0]

    def take_mean(self, part: int, decision: Decision) -> tuple[PartGradients, list[tf.Tensor]]:
        """On a ps: empties the queue; means of what is taken and, if here, of the state `[n]`."""
        queue, specs = self._queues[part], self._specs(part)
        device = self._store.devices[part]
        sums = [tf.zeros(spec.shape) for spec in [*specs.dense, *specs.state]]
        arrays = [_TakenRows.none(rows) for rows in specs.groups]

        def add(left: tf.Tensor, sums: list, arrays: list) -> tuple:
            with tf.device(device):
                sent = _with_shapes(specs, queue.dequeue())
                weight = self._weight(sent.token, decision)
                values = [*sent.dense, *sent.state]
                sums = [
                    total + tf.math.multiply_no_nan(tf.cast(value, tf.float32), weight)
                    for total, value in zip(sums, values, strict=True)
                ]
                arrays = [
                    taken.append(rows, weight)
                    for taken, rows in zip(arrays, sent.groups, strict=True)
                ]
                return left - 1, sums, arrays

        state = queue.size(), sums, arrays
        _, sums, arrays = tf.while_loop(lambda left, *_: left > 0, add, state)
        dense = len(specs.dense)
        groups = zip(arrays, self._store.groups, strict=True)
        rows = [taken.sum(group.gradients) for taken, group in groups]
        return PartGradients(sums[:dense], rows), sums[dense:]

    def _weight(self, token: tf.Tensor, decision: Decision) -> tf.Tensor:
        """A contribution's share in the mean, 0 where it is not taken."""
        member = token[MEMBER]
        is_its = tf.equal(decision.attempts[member], token[ATTEMPT])
        is_taken = is_its & tf.equal(token[ROUND], decision.round)
        return tf.where(is_taken, decision.weights[member], 0.0)

    def _has_state(self, part: int) -> bool:
        return part == len(self._store.devices) - 1 and self._store.state.changes

    def _specs(self, part: int) -> _Sent:
        """Shapes and dtypes of a contribution to one ps."""
        layout, travels = self._store.layout, self._store.wire.dtype
        first, end = layout.dense.bounds(part)
        dense = [tf.TensorSpec([end - first], travels)] if layout.dense.total else []
        groups = [
            SentRows(
                tf.TensorSpec([None], group.layout.id_dtype),
                tf.TensorSpec([None, group.gradients.width], travels),
            )
            for group in layout.groups
        ]
        changing = layout.state.changing.total
        state = [tf.TensorSpec([changing])] if self._has_state(part) else []
        return _Sent(tf.TensorSpec([TOKEN_FIELDS], tf.int64), dense, groups, state)


def _with_shapes(specs: _Sent, values: list[tf.Tensor]) -> _Sent:
    """A contribution with the shapes that a queue has forgotten."""
    flat = [
        tf.ensure_shape(value, spec.shape)
        for value, spec in zip(values, tf.nest.flatten(specs), strict=True)
    ]
    return tf.nest.pack_sequence_as(specs, flat)
