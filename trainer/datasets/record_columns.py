"""Some records of one file, a column per feature, with what to copy next to predictions."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfps.data import bad_records, examples
from tfps.data.feature import Feature
from tfps.errors import UserError


@dataclasses.dataclass(frozen=True)
class RecordBatch:
    """Serialized records of one file, strings `[n]`; the first is number `first`, from 1."""

    path: str
    first: int
    serialized: tf.Tensor

    @property
    def count(self) -> int:
        return int(self.serialized.shape[0])

    def where(self, index: int) -> str:
        return f"{self.path} record {self.first + index}"

    def has_labels(self, labels: Sequence[Feature]) -> bool:
        """Whether the first record holds any of the labels."""
        slot = self.example(0).features.feature
        return any(
            label.name in slot and slot[label.name].WhichOneof("kind") is not None
            for label in labels
        )

    def parse(
        self, features: Sequence[Feature], others: Sequence[Feature] = ()
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """What every record must hold, features and others, as tensors `[n, *shape]` by name."""
        try:
            inputs, rest = examples.parse(self.serialized, features, others)
        except tf.errors.InvalidArgumentError as error:
            for index in range(self.count):
                self._check(index, (*features, *others))
            raise UserError(
                f"{self.where(0)} and the next cannot be read: {error.message}"
            ) from None
        for feature in features:
            if feature.vocabulary_size:
                self._check_ids(feature, inputs[feature.name])
        return inputs, rest

    def example(self, index: int) -> Any:
        try:
            return tf.train.Example.FromString(self._bytes(index))
        except DecodeError:
            raise UserError(
                f"{self.where(index)} is no tf.train.Example; name data that was prepared for "
                "this model"
            ) from None

    def _bytes(self, index: int) -> bytes:
        return bytes(self.serialized[index].numpy())

    def _check(self, index: int, features: Sequence[Feature]) -> None:
        """Refuses a record that differs from the features."""
        if found := bad_records.find_problem(self._bytes(index), features):
            raise UserError(
                f"{self.where(index)} {found}; name data that was prepared for this model"
            )

    def _check_ids(self, feature: Feature, ids: tf.Tensor | tf.RaggedTensor) -> None:
        """Refuses a record with an id that the model does not know."""
        if feature.is_ragged:
            flat, records = ids.values.numpy(), ids.value_rowids().numpy()
        else:
            flat = ids.numpy().reshape(-1)
            records = np.arange(flat.size) // feature.size
        bad = (flat < 0) | (flat >= feature.vocabulary_size)
        if bad.any():
            self._check(int(records[np.argmax(bad)]), [feature])


@dataclasses.dataclass(frozen=True)
class ListedColumn:
    """A column of Python values, which is cut as an array is."""

    values: Sequence[Any]  # one per record, or a list of them; None where it is missing
    dtype: str  # as a feature's; values of `string` are `str`
    holds_lists: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(self, values=self.values[rows])


@dataclasses.dataclass(frozen=True)
class RecordColumns:
    """Some records of one file, by name `[count, *shape]`."""

    where: str
    count: int
    features: Mapping[str, npt.NDArray[Any] | tf.RaggedTensor]  # ragged for shape `(None,)`
    labels: Mapping[str, npt.NDArray[Any]]  # none where the records have none
    kept: Mapping[str, Any]  # arrays, `ListedColumn`s or `pyarrow.Array`s


def array_of(values: tf.Tensor | tf.RaggedTensor) -> Any:
    """A parsed feature as `RecordColumns` holds it."""
    return values if isinstance(values, tf.RaggedTensor) else np.asarray(values.numpy())
