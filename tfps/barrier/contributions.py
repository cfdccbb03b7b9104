"""The gradients that workers send for a round, on the ps until it closes."""

from typing import NamedTuple

import tensorflow as tf

from tfps.barrier.messages import ATTEMPT, MEMBER, ROUND, TOKEN_FIELDS, new_queue
from tfps.store.exchange import Push
from tfps.store.messages import Gradients, Note, PartGradients, RowGradients, SentRows
from tfps.store.parameter_store import ParameterStore


class Decision(NamedTuple):
    """What a round takes, on one ps.

    Attributes:
        round: Its number, scalar int64.
        attempts: For each member, the attempt whose contribution may be taken, `[members]` int64.
        weights: For each member, the share of its contribution in the mean, `[members]` float32; 0
            where it has none.
    """

    round: tf.Tensor
    attempts: tf.Tensor
    weights: tf.Tensor


class _Sent(NamedTuple):
    """A contribution, or sums of several, on one ps.

    Attributes:
        token: The one that the batch's parameters were pulled with, `[TOKEN_FIELDS]` int64.
        dense: Gradient of the ps's part of the dense parameters `[n]`, if there are any.
        state: Change of the state `[n]`, if the ps holds it.
    """

    token: tf.Tensor
    dense: list[tf.Tensor]
    groups: list[SentRows]
    state: list[tf.Tensor]


class _TakenRows(NamedTuple):
    """Rows of a group in the contributions that a round takes, one element for each contribution.

    Attributes:
        rows: Their numbers within the ps's part, `[u]`.
        gradients: `[u, width]` of `RowGradients`.
        weights: The contribution's share in the mean, `[u]`.
    """

    rows: tf.TensorArray
    gradients: tf.TensorArray
    weights: tf.TensorArray

    @classmethod
    def none(cls, spec: SentRows) -> "_TakenRows":
        """Makes empty arrays for rows of some shapes."""
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
    """A queue on each ps, of what the members of a round sent it.

    What a round takes does not depend on the order of arrival. Contributions that lie in a queue
    when a round closes, and that the round does not take, are thrown away. A worker that is still
    sending may have reached some ps only: the rest of its contribution is for a round that never
    opens again, and is thrown away when the next one closes.
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
        """Puts a batch's gradients into the queues.

        Args:
            trained: What travels along to the first ps, `[n]` float64.

        Returns:
            For each ps, the operation after which the gradients are in its queue; and what
            travelled along, there.
        """
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
        """Empties a queue; under the device of its ps.

        Returns:
            The mean of what is taken, and of the changes of the state, `[n]`, on the ps that has
            it.
        """
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
