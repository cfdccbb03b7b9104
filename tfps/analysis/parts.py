"""Parts of records, that can be taken from one record and put into another."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.data.row_format import RowFormat

# By feature name, each `[n, *shape]`: a `tf.RaggedTensor` for shape `(None,)`, else an array.
Records = Mapping[str, Any]

_MOST_VALUES = 64  # of a vector whose values are parts of their own


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value stands in a record.

    Attributes:
        feature: Name of the feature.
        index: Number of the value among the feature's, laid end to end; None for all of them.
    """

    feature: str
    index: int | None = None


class Part(NamedTuple):
    """Values of a record that belong together.

    Attributes:
        name: What they are.
        places: Where they stand.
    """

    name: str
    places: tuple[Place, ...]


def parts_of(features: Sequence[Feature], row_format: RowFormat | None = None) -> list[Part]:
    """The parts of a record.

    What is made of one column of a row is one part: of an age and its bucket neither says anything
    without the other. Without columns each feature is a part; of a vector of up to 64 values each
    value is one, as NAME[0], NAME[1] and so on.

    Args:
        features: What the record holds.
        row_format: How a row becomes a record; None where that is not known.
    """
    fields = row_format.fields if row_format else {}
    found: dict[str, list[Place]] = {}
    for feature in features:
        columns: Sequence[str] = (feature.name,)
        if feature.name in fields:
            columns = fields[feature.name].columns
        elif feature.shape and feature.size is not None and feature.size <= _MOST_VALUES:
            columns = [f"{feature.name}[{k}]" for k in range(feature.size)]
        for index, column in enumerate(columns):
            place = Place(feature.name, index if _is_cut(feature, columns) else None)
            found.setdefault(column, []).append(place)
    return [Part(name, tuple(places)) for name, places in found.items()]


def take(records: Records, numbers: Sequence[int] | np.ndarray) -> dict[str, Any]:
    """Some of the records, in any order; one may be there several times.

    Args:
        records: The records.
        numbers: Of those that are taken.
    """
    wanted = np.asarray(numbers, np.int64)
    return {
        name: tf.gather(values, wanted)
        if isinstance(values, tf.RaggedTensor)
        else np.asarray(values)[wanted]
        for name, values in records.items()
    }


def count_of(records: Records) -> int:
    """How many records there are."""
    return int(next(iter(records.values())).shape[0])


def exchanged(records: Records, part: Part, others: Records) -> dict[str, Any]:
    """The records with one part taken from others.

    Args:
        records: The records; they stay as they are.
        part: The part.
        others: As many records.
    """
    changed = dict(records)
    for place in part.places:
        name, index = place.feature, place.index
        if index is None:
            changed[name] = others[name]
        else:
            values = np.array(changed[name])
            count = len(values)
            values.reshape(count, -1)[:, index] = np.reshape(others[name], (count, -1))[:, index]
            changed[name] = values
    return changed


def _is_cut(feature: Feature, columns: Sequence[str]) -> bool:
    """Whether each column has one of the feature's values."""
    return bool(feature.shape) and feature.size == len(columns)
