"""The lookups of a model, as a graph."""

import tensorflow as tf

from tfps.model import Features, Lookup, StatelessModel


class TracedLookups:
    """A model's lookups as a graph that is made once, however often and where it is called."""

    def __init__(self, model: StatelessModel, training: bool):
        """Prepares the graph.

        Args:
            model: The model.
            training: Whether layers behave as in training.
        """
        self._model = model
        self._training = training
        self._tables: list[int] = []
        self._ids = tf.function(self._trace, autograph=False, reduce_retracing=True)

    def __call__(self, features: Features) -> list[Lookup]:
        """What one batch asks for.

        Args:
            features: By name, `[batch, *shape]`.

        Raises:
            UserError: If ids depend on what an embedding layer answered.
        """
        ids = self._ids(features)
        return [Lookup(*call) for call in zip(self._tables, ids, strict=True)]

    def _trace(self, features: Features) -> list[tf.Tensor]:
        lookups = self._model.lookups(features, self._training)
        self._tables = [lookup.table for lookup in lookups]
        return [lookup.ids for lookup in lookups]
