"""Metrics of a model in evaluations: those that its own code updates, and losses of outputs."""

from collections.abc import Iterable, Mapping, Sequence

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.model.compiled_task import is_sum, made_again

States = Mapping[str, npt.NDArray[np.float64]]


class LayerMetrics:
    """The metrics of a model and its layers that evaluations measure, without those of `compile`.

    Such is a `keras.metrics.Mean` that a layer's `call` updates. They begin each batch empty; their
    states are added up. So are the losses of several outputs. `unmeasured` has a sentence for each
    metric that is not measured.
    """

    def __init__(self, model: type[keras.Model]) -> None:
        self.unmeasured: list[str] = []
        if model.compute_metrics is not keras.Model.compute_metrics:
            self.unmeasured.append(
                f"compute_metrics() of {model.__name__} is never called, and what it measures is "
                "not reported: update a keras.metrics.Mean in call() or compute_loss(), or name a "
                "metric in compile() or metrics()"
            )
        self._metrics: dict[str, keras.metrics.Metric] = {}
        self._losses: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, as in Keras's logs."""
        return (*self._losses, *self._metrics)

    def choose(
        self,
        evaluated: Sequence[keras.metrics.Metric],
        trained: Sequence[keras.metrics.Metric],
        losses: Iterable[str],
    ) -> None:
        """Chooses of the metrics that evaluations and training update, and of outputs' losses."""
        known = {id(metric) for metric in evaluated}
        for metric in trained:
            if id(metric) not in known:
                self._leave_out(metric, "it is updated in training alone, and evaluations measure")
        for metric in evaluated:
            if metric.name == "loss" or metric.name in self._metrics:
                self._leave_out(metric, "another one has its name")
            elif not is_sum(metric) or not metric.variables:
                kind = type(metric).__name__
                self._leave_out(metric, f"a {kind} of several workers is not a sum, as a Mean is")
            else:
                made_again(metric)
                self._metrics[metric.name] = metric
        self._losses = tuple(name for name in losses if name not in self._metrics)

    def states(
        self, scope: keras.StatelessScope, losses: Mapping[str, tf.Tensor], records: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Their states at the end of a batch's scope, by name, laid end to end `[n]` float64."""
        count = tf.cast(records, tf.float64)
        of_outputs = {
            name: tf.stack([tf.cast(loss, tf.float64) * count, count])
            for name, loss in losses.items()
            if name not in self._metrics
        }
        return of_outputs | {
            name: tf.concat(
                [
                    tf.reshape(tf.cast(scope.get_current_value(v), tf.float64), [-1])
                    for v in metric.variables
                ],
                0,
            )
            for name, metric in self._metrics.items()
        }

    def zeros(self) -> dict[str, tf.Tensor]:
        of_outputs = {name: tf.zeros([2], tf.float64) for name in self._losses}
        return of_outputs | {
            name: tf.zeros([sum(int(np.prod(v.shape)) for v in metric.variables)], tf.float64)
            for name, metric in self._metrics.items()
        }

    def result(self, states: Iterable[States]) -> dict[str, float]:
        """The metrics by name, from the states of several places."""
        every = list(states)
        found: dict[str, float] = {}
        for name in self._losses:
            loss, records = np.sum([each[name] for each in every], 0)
            found[name] = float(loss / records)
        for name, metric in self._metrics.items():
            total = np.sum([each[name] for each in every], 0)
            # Made now: a process that becomes a chief loses the variables it made before.
            again = made_again(metric)
            for variable in again.variables:
                size = int(np.prod(variable.shape))
                variable.assign(np.reshape(total[:size], variable.shape))
                total = total[size:]
            found[name] = float(again.result())
        return found

    def _leave_out(self, metric: keras.metrics.Metric, reason: str) -> None:
        self.unmeasured.append(f"metric {metric.name!r} of the model is not measured: {reason}")
