"""One step: pull, compute, push."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.experiment.task import Task
from tfps.model import variables
from tfps.model.inputs import batch_records, predict_by_name
from tfps.model.stateless_model import Features, Labels, Lookup, StatelessModel
from tfps.profiling import scopes
from tfps.store.messages import Gradients, Note, Pulled, PulledRows
from tfps.store.parameter_store import ParameterStore
from tfps.worker.judge import Counts, Judge


class Batch(NamedTuple):
    """Records, `[batch, *shape]` by name, with the parameters that they need."""

    features: Features
    labels: Labels
    pulled: Pulled

    @property
    def records(self) -> tf.Tensor:
        """How many records it has, negatives among them, scalar int32."""
        return batch_records(self.features, self.labels)

    def arrived(self) -> list[tf.Tensor]:
        """Tensors that exist once the pull has arrived, and with it every earlier push."""
        return [*self.pulled.dense[:1], *(group.rows for group in self.pulled.groups)]


class FoundBatch(NamedTuple):
    """Records, `[batch, *shape]` by name, with their rows' places by group, before the pull."""

    features: Features
    labels: Labels
    lookups: list[Lookup]
    rows: list[PulledRows]


# Loss, gradients of dense parameters and of every lookup's rows, new state, scores to be judged.
Computed = tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]


class Step:
    """A batch against the parameter store, traced into the closure that trains or predicts."""

    def __init__(
        self,
        task: Task,
        model: StatelessModel,
        store: ParameterStore,
        jit_compile: bool = False,
        devices: Sequence[str] = ("",),
        judge: Judge | None = None,
    ):
        """XLA may compile between pull and push; `devices` share a batch, "" for TensorFlow's.

        A judge compares the predictions of trained batches with their labels.
        """
        self._task = task
        self._model = model
        self.store = store
        self.prediction_names = model.prediction_names
        self.layer_metrics = model.layer_metrics
        self._devices = devices
        self._judge = judge
        self._judged: Counts | None = None
        # Traced once, however many steps a closure is unrolled into.
        self._compute = tf.function(
            self._computed, jit_compile=jit_compile or None, autograph=False
        )

    @property
    def judged(self) -> tuple[str, ...]:
        """The labels that batches are judged by."""
        return self._judge.labels if self._judge else ()

    @contextlib.contextmanager
    def judging(self) -> Iterator[Callable[[], tf.Tensor]]:
        """In a closure: counts the batches that are computed in the block.

        Gives a function that reads the counts, `[n]` float64, 0 of them without a judge.
        """
        if self._judge is None:
            yield lambda: tf.zeros([0], tf.float64)
            return
        self._judged = judged = self._judge.begin()
        try:
            yield judged.all
        finally:
            self._judged = None

    def pull(self, features: Features, labels: Labels) -> Batch:
        """Pulls what a batch needs to be trained."""
        with tf.name_scope(scopes.PULL):
            pulled = self.store.pull(self.lookups(features, labels))
        return Batch(features, labels, pulled)

    def find(self, features: Features, labels: Labels) -> FoundBatch:
        """Finds out what a batch needs to be trained, without parameters."""
        with tf.name_scope(scopes.PULL):
            lookups = self.lookups(features, labels)
            return FoundBatch(features, labels, lookups, self.store.finder.find(lookups))

    def pull_found(self, found: FoundBatch, after: Sequence[tf.Tensor] = ()) -> Batch:
        """Fetches what a batch needs to be trained, where it is known what that is."""
        features, labels, lookups, rows = found
        with tf.name_scope(scopes.PULL):
            return Batch(features, labels, self.store.pull(lookups, after, rows))

    def lookups(self, features: Features, labels: Labels) -> list[Lookup]:
        """A batch's lookups in the tables, on all devices."""
        return [
            lookup
            for piece, _ in self._pieces(features, labels)
            for lookup in self._model.lookups(piece, training=True)
        ]

    def train(
        self,
        batch: Batch,
        seed: tf.Tensor,
        note_of: Callable[[tf.Tensor], Note] | None = None,
    ) -> tf.Tensor:
        """Computes gradients on all devices, pushes once; loss with the model's, scalar float32."""
        loss, gradients = self.gradients(batch, seed)
        with tf.name_scope(scopes.PUSH):
            self.store.push(*gradients, note=note_of(loss) if note_of else None)
        return loss

    def gradients(self, batch: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, Gradients]:
        """A batch's gradients, on all devices; random layers draw from `seed`, `[2]` int64."""
        with tf.name_scope(scopes.COMPUTE):
            return self._gradients(batch, seed)

    def _gradients(self, batch: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, Gradients]:
        pulled = batch.pulled
        rows = self.store.rows_by_lookup(pulled)
        pieces = self._pieces(batch.features, batch.labels)
        each = len(rows) // len(pieces)
        results = []
        for index, (device, piece) in enumerate(zip(self._devices, pieces, strict=True)):
            rows_of_piece = rows[index * each : (index + 1) * each]
            draw = variables.on_device(seed, index)
            with tf.device(device or None):
                results.append(
                    self._compute(
                        (pulled.dense, rows_of_piece), pulled.state, pulled.loss_scale, draw, *piece
                    )
                )
        loss, dense, rows, state = _mean(results, [batch_records(*piece) for piece in pieces])
        if self._judge and self._judged:
            scores = tf.concat([score for *_, given in results for score in given], 1)
            self._judged.add(scores, batch.labels)
        return loss, self.store.gradients(pulled, dense, rows, state)

    def predict(
        self, features: Features, labels: Labels
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Evaluates a batch: loss (scalar float32), predictions by name, layers' metric states."""
        lookups = self._model.lookups(features, training=False)
        pulled = self.store.pull(lookups, is_training=False)
        rows = self.store.rows_by_lookup(pulled)
        with tf.device(self._devices[0] or None):
            forward = self._model.forward(
                pulled.dense,
                pulled.state,
                rows,
                tf.zeros([2], tf.int64),
                features,
                labels,
                training=False,
            )
        return forward.loss, predict_by_name(self._task, forward.outputs), forward.measured

    def _pieces(self, features: Features, labels: Labels) -> list[tuple[Features, Labels]]:
        """A batch cut into as many pieces as there are devices."""
        pieces = len(self._devices)
        if pieces == 1:
            return [(features, labels)]
        count = batch_records(features, labels)
        bounds = [count * piece // pieces for piece in range(pieces + 1)]
        return [
            (_cut(features, first, end), _cut(labels, first, end))
            for first, end in itertools.pairwise(bounds)
        ]

    def _computed(
        self,
        parameters: tuple[list[tf.Tensor], list[tf.Tensor]],
        state: list[tf.Tensor],
        loss_scale: tf.Tensor | None,
        seed: tf.Tensor,
        features: Features,
        labels: Labels,
    ) -> Computed:
        """What one device computes."""
        dense, rows = parameters
        forward = self._model.forward(dense, state, rows, seed, features, labels, training=True)
        loss = forward.loss if loss_scale is None else forward.loss * loss_scale
        # Other than a tape, it computes an operation's gradient on the operation's own device.
        found = tf.gradients(
            loss, [*dense, *rows], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        gradients = found[: len(dense)], found[len(dense) :]
        if loss_scale is not None:
            gradients = tf.nest.map_structure(lambda gradient: gradient / loss_scale, gradients)
        scores = []
        if self._judge:
            scores = [self._judge.scores(predict_by_name(self._task, forward.outputs))]
        return forward.loss, *gradients, forward.state, scores


def _mean(
    results: Sequence[Computed], counts: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """Joins what the pieces of a batch gave: means over its records, and every piece's own rows.

    A piece of a small last batch may be empty; what it gave is not finite and counts for nothing.
    """
    if len(results) == 1:
        return results[0][:4]
    total = tf.cast(tf.add_n(counts), tf.float32)
    weights = [tf.cast(count, tf.float32) / total for count in counts]
    losses, dense, rows, state, _ = zip(*results, strict=True)

    def mean(values: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.add_n(
            [tf.math.multiply_no_nan(x, w) for x, w in zip(values, weights, strict=True)]
        )

    weighted = [
        tf.math.multiply_no_nan(x, w) for some, w in zip(rows, weights, strict=True) for x in some
    ]
    return (
        mean(losses),
        [mean(values) for values in zip(*dense, strict=True)],
        weighted,
        [mean(values) for values in zip(*state, strict=True)],
    )


def _cut(values: Mapping[str, tf.Tensor], first: tf.Tensor, end: tf.Tensor) -> dict[str, tf.Tensor]:
    return {name: value[first:end] for name, value in values.items()}
