"""What the end of a round changes: the mean of what it takes is applied once, on every ps."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.barrier.contributions import Contributions, Decision
from tfps.store.loss_scale import LossScale
from tfps.store.messages import PartGradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.part_clipping import PartClipping


class RoundUpdate:
    """Makes of a round the step that one process would make of all its records.

    The mean is clipped as an optimizer clips the gradient of one batch: norms are those of the mean
    over all ps. Where the loss is scaled, a mean that is not finite on some ps changes no parameter
    on any, and halves the scale once, as `keras.optimizers.LossScaleOptimizer` does with a batch.
    The state changes nevertheless: it comes of the forward pass.
    """

    def __init__(self, store: ParameterStore, contributions: Contributions, members: int):
        self._store = store
        self._contributions = contributions
        self._members = members
        self._clipping = PartClipping(store.layout, store.groups, store.devices)

    def apply(self, decided: tf.Tensor) -> list[tf.Tensor | tf.Operation]:
        """Applies what a round takes on every ps.

        Args:
            decided: The round, each member's attempt, and each member's share in the mean, `[1 + 2
                * members]` float64, on the first ps.
        """
        store = self._store
        writes: list[tf.Tensor | tf.Operation] = []
        means: list[PartGradients] = []
        arrived: list[tf.Tensor] = []
        for part, device in enumerate(store.devices):
            with tf.device(device):
                here = tf.identity(decided)
                mean, state = self._contributions.take_mean(part, self._decision(here))
                writes += [store.add_to_state(change) for change in state]
            arrived.append(here)
            means.append(mean)
        finite = self._finite(means, store.loss_scale) if store.loss_scale else None
        if store.loss_scale and finite is not None:
            writes.append(store.loss_scale.update(store.loss_scale.pull(), finite))
        for part, mean in enumerate(self._clipping.clip(means)):
            writes += self._apply(part, mean, arrived[part], finite)
        return writes

    def _decision(self, decided: tf.Tensor) -> Decision:
        """What was decided, as it has arrived on a ps."""
        round_, attempts, weights = tf.split(decided, [1, self._members, self._members])
        return Decision(
            tf.cast(round_[0], tf.int64), tf.cast(attempts, tf.int64), tf.cast(weights, tf.float32)
        )

    def _finite(self, means: Sequence[PartGradients], scale: LossScale) -> tf.Tensor:
        """Whether the mean is finite on all ps, scalar bool, where the loss scale is."""
        found = []
        for device, mean in zip(self._store.devices, means, strict=True):
            with tf.device(device):
                gradients = [*mean.dense, *(rows.gradient for rows in mean.groups)]
                found.append(scale.all_finite(gradients))
        with tf.device(self._store.devices[self._store.layout.loss_scale_part]):
            return tf.reduce_all(tf.stack(found))

    def _apply(
        self, part: int, mean: PartGradients, arrived: tf.Tensor, finite: tf.Tensor | None
    ) -> list[tf.Tensor | tf.Operation]:
        """Applies a ps's part of the mean, unless it is not finite: what is there once it is."""
        store = self._store

        def apply() -> list[tf.Tensor | tf.Operation]:
            step = store.update_counts.add(part, [arrived], pulled_at={})
            return store.apply(part, mean.dense, mean.groups, step)

        def applied() -> tf.Tensor:
            with tf.device(store.devices[part]), tf.control_dependencies(apply()):
                return tf.constant(True)

        with tf.device(store.devices[part]):
            if finite is None:
                return apply()
            return [tf.cond(tf.identity(finite), applied, lambda: tf.constant(False))]
