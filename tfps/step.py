"""One step: pull, compute, push."""

import tensorflow as tf

from tfps.model import Features, Labels, StatelessModel
from tfps.named_predictions import named_predictions
from tfps.store.parameter_store import ParameterStore
from tfps.task import Task


class Step:
    """A batch against the parameter store, traced into the closure that trains or predicts."""

    def __init__(self, task: Task, model: StatelessModel, store: ParameterStore):
        self._task = task
        self._model = model
        self._store = store

    def train(
        self, features: Features, labels: Labels, seed: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Trains one batch.

        Args:
            features: By name, `[batch, *shape]`.
            labels: By name, `[batch, *shape]`.
            seed: `[2]` int64, from which random layers draw.

        Returns:
            The loss (scalar float32, the model's own losses included), and tensors that exist only
            once the pull of this batch has arrived, and with it every earlier push of this worker.
        """
        pulled = self._store.pull(self._model.lookups(features, training=True))
        parameters = [*pulled.dense, *pulled.embedded]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parameters)
            rows = self._store.rows(pulled, pulled.embedded)
            forward = self._model.forward(
                pulled.dense, pulled.state, rows, seed, features, labels, training=True
            )
            loss = forward.loss
            if pulled.loss_scale is not None:
                loss *= pulled.loss_scale
        gradients = tape.gradient(
            loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        if pulled.loss_scale is not None:
            gradients = [gradient / pulled.loss_scale for gradient in gradients]
        count = len(pulled.dense)
        self._store.push(pulled, gradients[:count], gradients[count:], forward.state)
        return forward.loss, [*pulled.dense[:1], *(group.rows for group in pulled.groups)]

    def predict(self, features: Features, labels: Labels) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Evaluates one batch without changing anything.

        Returns:
            The loss (scalar float32, the model's own losses included) and the task's predictions by
            name.
        """
        pulled = self._store.pull(self._model.lookups(features, training=False))
        forward = self._model.forward(
            pulled.dense,
            pulled.state,
            self._store.rows(pulled, pulled.embedded),
            tf.zeros([2], tf.int64),
            features,
            labels,
            training=False,
        )
        return forward.loss, named_predictions(self._task, forward.outputs)
