"""One step: pull, compute, push."""

from typing import NamedTuple

import tensorflow as tf

from tfps.model import Features, Labels, StatelessModel
from tfps.named_predictions import named_predictions
from tfps.store.parameter_store import ParameterStore, Pulled
from tfps.task import Task


class Batch(NamedTuple):
    """Records with the parameters that they need.

    Attributes:
        features: By name, `[batch, *shape]`.
        labels: By name, `[batch, *shape]`.
        pulled: What was pulled for them.
    """

    features: Features
    labels: Labels
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
        self._model = model
        self._store = store
        self._compute = self._gradients
        if jit_compile:
            self._compute = tf.function(self._gradients, jit_compile=True, autograph=False)

    def pull(self, features: Features, labels: Labels) -> Batch:
        """Fetches what a batch needs to be trained.

        Args:
            features: By name, `[batch, *shape]`.
            labels: By name, `[batch, *shape]`.
        """
        lookups = self._model.lookups(features, training=True)
        return Batch(features, labels, self._store.pull(lookups))

    def train(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Computes a batch's gradients and pushes them.

        Args:
            batch: What `pull` returned.
            seed: `[2]` int64, from which random layers draw.

        Returns:
            The loss (scalar float32, the model's own losses included).
        """
        pulled = batch.pulled
        loss, dense, rows, state = self._compute(
            (pulled.dense, self._store.rows(pulled)),
            pulled.state,
            pulled.loss_scale,
            seed,
            batch.features,
            batch.labels,
        )
        self._store.push(pulled, dense, self._store.by_group(pulled, rows), state)
        return loss

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
            self._store.rows(pulled),
            tf.zeros([2], tf.int64),
            features,
            labels,
            training=False,
        )
        return forward.loss, named_predictions(self._task, forward.outputs)

    def _gradients(
        self,
        parameters: tuple[list[tf.Tensor], list[tf.Tensor]],
        state: list[tf.Tensor],
        loss_scale: tf.Tensor | None,
        seed: tf.Tensor,
        features: Features,
        labels: Labels,
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """Loss, gradients of dense parameters and of every lookup's rows, new state."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parameters)
            dense, rows = parameters
            forward = self._model.forward(dense, state, rows, seed, features, labels, training=True)
            loss = forward.loss if loss_scale is None else forward.loss * loss_scale
        gradients = tape.gradient(
            loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        if loss_scale is not None:
            gradients = tf.nest.map_structure(lambda gradient: gradient / loss_scale, gradients)
        return forward.loss, *gradients, forward.state
