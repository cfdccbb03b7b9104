"""One step: pull, compute, push."""

import tensorflow as tf

from tfps.model import Features, StatelessModel
from tfps.store.parameter_store import ParameterStore
from tfps.task import Task


class Step:
    """A batch against the parameter store, traced into the closure that trains or predicts."""

    def __init__(self, task: Task, model: StatelessModel, store: ParameterStore):
        self._task = task
        self._loss = task.loss()
        self._model = model
        self._store = store

    def train(
        self, features: Features, label: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Trains one batch.

        Args:
            features: By name, `[batch, *shape]`.
            label: `[batch, *shape]`.
            seed: `[2]` int64, from which random layers draw.

        Returns:
            The loss (scalar float32, the layers' own losses included), and tensors that exist only
            once the pull of this batch has arrived, and with it every earlier push of this worker.
        """
        pulled = self._store.pull(self._model.lookups(features, training=True))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([pulled.dense, pulled.embedded])
            rows = self._store.rows(pulled, pulled.embedded)
            forward = self._model.forward(
                pulled.dense, pulled.state, rows, seed, features, training=True
            )
            loss = tf.cast(self._loss(label, forward.outputs), tf.float32) + forward.losses
        dense, embedded = tape.gradient(
            loss,
            [pulled.dense, pulled.embedded],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        self._store.push(pulled, dense, embedded, forward.state)
        return loss, [*pulled.dense[:1], *(group.rows for group in pulled.groups)]

    def predict(self, features: Features, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Evaluates one batch without changing anything.

        Returns:
            The loss (scalar float32, the layers' own losses included) and the task's predictions.
        """
        pulled = self._store.pull(self._model.lookups(features, training=False))
        forward = self._model.forward(
            pulled.dense,
            pulled.state,
            self._store.rows(pulled, pulled.embedded),
            tf.zeros([2], tf.int64),
            features,
            training=False,
        )
        loss = tf.cast(self._loss(label, forward.outputs), tf.float32) + forward.losses
        return loss, self._task.predictions(forward.outputs)
