"""A model that others published the kind of, with small data for it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from tfps.data.feature import Feature

YES_OR_NO = 2  # the vocabulary of a label that is 0 or 1
DRAWN = 0.1  # the tolerance of models that drop units, turn images or draw otherwise


@dataclasses.dataclass(frozen=True)
class Case:
    """A compiled model as its users write it, and records that it can learn from.

    Attributes:
        name: Unique among all cases, in snake_case.
        kind: What it is for: `structured data`, `recommendation`, `text`, `time series`, `vision`
            or `several tasks`.
        features: The model's inputs, by whose names a functional model's inputs are called.
        label: What it learns; of several, the model's outputs are a dict by their names, or a list
            in their order.
        columns: Draws features and labels of so many records, `[count, *shape]` by name. Text is
            an object array of str, and so is a feature of shape `(None,)` of arrays, one a record.
            What the labels depend on is the same whatever generator they are drawn with.
        build: Makes the model, compiled; it asks for no data.
        records: How many records are enough to see the loss fall.
        batch_size: Records of a step.
        epochs: How often the records are gone through.
        is_drawn: Whether what it predicts is drawn.
        tolerance: By what part of the way that the loss falls under `fit` tfps may end elsewhere.
        on_cluster: The same of a cluster of two workers, which may end higher by as much: it begins
            with other parameters, and its gradients are a step old.
    """

    name: str
    kind: str
    features: tuple[Feature, ...]
    label: Feature | tuple[Feature, ...]
    columns: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    build: Callable[[], keras.Model]
    records: int = 2048
    batch_size: int = 64
    epochs: int = 2
    is_drawn: bool = False
    tolerance: float = 0.005
    on_cluster: float = 0.3


def inputs_of(features: Iterable[Feature]) -> dict[str, Any]:
    """Inputs of a functional model by the names of its features."""
    return {
        feature.name: keras.Input(feature.shape, name=feature.name, dtype=feature.dtype)
        for feature in features
    }
