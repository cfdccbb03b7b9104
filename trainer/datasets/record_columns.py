"""Some records of one file, a column per feature, with what is to be copied beside predictions."""

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
    """Serialized records of one file.

    Attributes:
        first: Number of the first of them in the file, from 1.
        serialized: Strings `[n]`, each a `tf.train.Example`.
    """

    path: str
    first: int
    serialized: tf.Tensor

    @property
    def count(self) -> int:
        """How many records there are."""
        return int(self.serialized.shape[0])

    def where(self, index: int) -> str:
        """The record of this index in the batch, for messages."""
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
        """The records as tensors.

        Args:
            features: What every record must hold.
            others: What else it must hold.

        Returns:
            Tensors `[n, *shape]` of the features and of the others, by name.
        """
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
        """The record of this index, as a `tf.train.Example`."""
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
    """A column of Python values, which is cut as an array is.

    Attributes:
        values: One per record, or a list of them; None where it is missing.
        dtype: Of the values, as a feature's; those of `string` are `str`.
    """

    values: Sequence[Any]
    dtype: str
    holds_lists: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(self, values=self.values[rows])


@dataclasses.dataclass(frozen=True)
class RecordColumns:
    """Some records of one file.

    Attributes:
        features: By name, each `[count, *shape]`: a `tf.RaggedTensor` for shape `(None,)`, else an
            array, of bytes objects for strings.
        labels: By name, arrays `[count, *shape]`; none where the records have no labels.
        kept: By name, what is to be copied: an array `[count, *shape]`, a `ListedColumn`, or a
            `pyarrow.Array`.
    """

    where: str
    count: int
    features: Mapping[str, npt.NDArray[Any] | tf.RaggedTensor]
    labels: Mapping[str, npt.NDArray[Any]]
    kept: Mapping[str, Any]


def array_of(values: tf.Tensor | tf.RaggedTensor) -> Any:
    """A parsed feature as `RecordColumns` holds it."""
    return values if isinstance(values, tf.RaggedTensor) else np.asarray(values.numpy())
