"""Some records of one file that still know where they stand, so that a bad one can be named."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
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
