"""One step: pull, compute, push."""

from typing import NamedTuple

import tensorflow as tf

from tfps.model import Features, StatelessModel
from tfps.store.parameter_store import ParameterStore, Pulled
from tfps.task import Task


class Batch(NamedTuple):
    """Records with the parameters that they need.

    Attributes:
        features: By name, `[batch, *shape]`.
        label: `[batch, *shape]`.
        pulled: What was pulled for them.
    """

    features: Features
    label: tf.Tensor
    pulled: Pulled

    def arrived(self) -> list[tf.Tensor]:
        """Tensors that exist once the pull has arrived, and with it every earlier push."""
        return [*self.pulled.dense[:1], *(group.rows for group in self.pulled.groups)]


class Step:
    """A batch against the parameter store, traced into the closure that trains or predicts."""

    def __init__(
        self, task: Task, model: StatelessModel, store: ParameterStore, jit_compile: bool = False
    ):
        """Prepares the steps of a task.

        Args:
            task: The task.
            model: Its model.
            store: The parameters.
            jit_compile: Whether XLA compiles what happens between pull and push.
        """
        self._task = task
        self._loss = task.loss()
        self._model = model
        self._store = store
        self._compute = self._gradients
        if jit_compile:
            self._compute = tf.function(self._gradients, jit_compile=True, autograph=False)

    def pull(self, features: Features, label: tf.Tensor) -> Batch:
        """Fetches what a batch needs to be trained.

        Args:
            features: By name, `[batch, *shape]`.
            label: `[batch, *shape]`.
        """
        return Batch(
            features, label, self._store.pull(self._model.lookups(features, training=True))
        )

    def train(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Computes a batch's gradients and pushes them.

        Args:
            batch: What `pull` returned.
            seed: `[2]` int64, from which random layers draw.

        Returns:
            The loss (scalar float32, the layers' own losses included).
        """
        pulled = batch.pulled
        loss, dense, rows, state = self._compute(
            pulled.dense,
            pulled.state,
            self._store.rows(pulled),
            seed,
            batch.features,
            batch.label,
        )
        self._store.push(pulled, dense, self._store.by_group(pulled, rows), state)
        return loss

    def predict(self, features: Features, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Evaluates one batch without changing anything.

        Returns:
            The loss (scalar float32, the layers' own losses included) and the task's predictions.
        """
        pulled = self._store.pull(self._model.lookups(features, training=False))
        forward = self._model.forward(
            pulled.dense,
            pulled.state,
            self._store.rows(pulled),
            tf.zeros([2], tf.int64),
            features,
            training=False,
        )
        loss = tf.cast(self._loss(label, forward.outputs), tf.float32) + forward.losses
        return loss, self._task.predictions(forward.outputs)

    def _gradients(
        self,
        dense: list[tf.Tensor],
        state: list[tf.Tensor],
        rows: list[tf.Tensor],
        seed: tf.Tensor,
        features: Features,
        label: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """Loss, gradients of dense parameters and of every lookup's rows, new state."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([dense, rows])
            forward = self._model.forward(dense, state, rows, seed, features, training=True)
            loss = tf.cast(self._loss(label, forward.outputs), tf.float32) + forward.losses
        of_dense, of_rows = tape.gradient(
            loss, [dense, rows], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return loss, of_dense, of_rows, forward.state
