"""Features of records that are copied beside predictions, whether or not a model has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError, listed
from trainer.datasets.record_batch import RecordBatch
from trainer.datasets.record_columns import ListedColumn, array_of

_DTYPES = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}


class KeptFeatures:
    """Features to copy, of which the first record says what they hold.

    Attributes:
        others: Those that are to be parsed besides the model's; known after `resolve`.
    """

    def __init__(self, names: Sequence[str], known: Sequence[Feature]):
        self.others: tuple[Feature, ...] = ()
        self._names = names
        self._known = {feature.name for feature in known}
        self._scalars: set[str] = set()
        self._is_resolved = False

    def resolve(self, batch: RecordBatch) -> None:
        """Looks at the first record of all, once."""
        if self._is_resolved:
            return
        self._is_resolved = True
        held = batch.example(0).features.feature if self._names else {}
        others = []
        for name in self._names:
            kind = held[name].WhichOneof("kind") if name in held else None
            if kind is None:
                raise UserError(
                    f"{batch.where(0)} has no {name!r}, which --keep names (it has "
                    f"{listed(sorted(held))})"
                )
            if name not in self._known:
                others.append(Feature(name, _DTYPES[kind], (None,)))
                if len(getattr(held[name], kind).value) == 1:
                    self._scalars.add(name)
        self.others = tuple(others)

    def columns(self, batch: RecordBatch, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """The columns to copy, as `RecordColumns.kept`."""
        # A later file without labels is refused as such by those who read them all.
        names = [name for name in self._names if name in parsed]
        return {name: self._column(batch, name, parsed[name]) for name in names}

    def _column(self, batch: RecordBatch, name: str, values: tf.Tensor | tf.RaggedTensor) -> Any:
        if not isinstance(values, tf.RaggedTensor):
            return array_of(values)
        flat: list[Any] = values.values.numpy().tolist()
        ends = values.row_splits.numpy()
        if values.dtype == tf.string:
            flat = [_text(batch, name, values, index, cell) for index, cell in enumerate(flat)]
        sizes = np.diff(ends)
        if name not in self._scalars:
            lists = [flat[end - size : end] for size, end in zip(sizes, ends[1:], strict=True)]
            return ListedColumn(lists, values.dtype.name, holds_lists=True)
        if (sizes > 1).any():
            at = int(np.argmax(sizes > 1))
            raise UserError(
                f"{batch.where(at)} holds {sizes[at]} values in {name!r}, but the first record "
                "one; leave it out of --keep"
            )
        cells = iter(flat)
        return ListedColumn([next(cells) if size else None for size in sizes], values.dtype.name)


def _text(batch: RecordBatch, name: str, values: tf.RaggedTensor, index: int, cell: bytes) -> str:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        at = int(values.value_rowids()[index])
        raise UserError(
            f"{batch.where(at)} holds bytes that are no UTF-8 text in {name!r}; leave it out of "
            "--keep"
        ) from None
