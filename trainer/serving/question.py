"""What a request asks a model: its records, read from rows or from columns."""

import dataclasses
import itertools
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import tensorflow as tf

from tfps.data.feature import Feature
from tfps.export.exported_files import EXAMPLES_INPUT, EXAMPLES_SIGNATURE, FEATURES_SIGNATURE
from tfps.export.loaded_model import ExportedModel, RefusedRecordsError
from tfps.model.inputs import row_lengths_of
from trainer.serving.columns import Columns, read_columns
from trainer.serving.example_check import check_examples
from trainer.serving.json_body import shown
from trainer.serving.refusal import RefusedError, listed, unfit

_SIGNATURE, _ROWS, _COLUMNS = "signature_name", "instances", "inputs"
_EXAMPLES = (Feature(EXAMPLES_INPUT, "string"),)
_DTYPES = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}


@dataclasses.dataclass(frozen=True)
class Question:
    """Records for a model, in the form of one of its signatures.

    Attributes:
        has_rows: Whether the records were rows, as the answer then has to be.
        values: Tensors `[n, *shape]` by input name, ragged for shape `(None,)`.
    """

    signature: str
    has_rows: bool
    values: Mapping[str, Any]

    def ask(self, model: ExportedModel) -> dict[str, Any]:
        """The model's answer: arrays `[n, ...]` float32 by name."""
        try:
            if self.signature == EXAMPLES_SIGNATURE:
                return model.predict_examples(self.values[EXAMPLES_INPUT].numpy().tolist())
            return model.predict(self.values)
        except RefusedRecordsError as error:
            raise unfit(f"the model refuses these records: {error.reason}") from None


def read_question(document: Mapping[str, Any], model: ExportedModel, max_batch: int) -> Question:
    """What a request's body asks."""
    unknown = [key for key in document if key not in (_SIGNATURE, _ROWS, _COLUMNS)]
    if unknown:
        raise unfit(
            f"the body has the key {shown(unknown[0])}; "
            f'it may have "{_ROWS}" or "{_COLUMNS}", and "{_SIGNATURE}"'
        )
    signature = _signature(document, model)
    features = _EXAMPLES if signature == EXAMPLES_SIGNATURE else model.features
    if (_ROWS in document) == (_COLUMNS in document):
        state = "both" if _ROWS in document else "neither"
        raise unfit(f'the body has {state} of "{_ROWS}" and "{_COLUMNS}"; it must have one of them')
    has_rows = _ROWS in document
    columns = read_columns(document[_ROWS if has_rows else _COLUMNS], has_rows, features)
    if columns.count > max_batch:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the request has {columns.count:,} records, and this server takes up to "
            f"{max_batch:,} at once (--max_batch)",
        )
    values = {feature.name: _tensor(feature, columns) for feature in features}
    if signature == EXAMPLES_SIGNATURE:
        check_examples(values[EXAMPLES_INPUT].numpy().tolist(), model.features, has_rows)
    return Question(signature, has_rows, values)


def _signature(document: Mapping[str, Any], model: ExportedModel) -> str:
    name = document.get(_SIGNATURE, FEATURES_SIGNATURE)
    if not isinstance(name, str):
        raise unfit(f'"{_SIGNATURE}" is {shown(name)}, not a string')
    name = name or FEATURES_SIGNATURE
    if name not in model.signatures:
        raise unfit(f'"{_SIGNATURE}" is {shown(name)}; the model has {listed(model.signatures)}')
    return name


def _tensor(feature: Feature, columns: Columns) -> Any:
    """All records' values of a feature."""
    dtype = _DTYPES[feature.dtype]
    if feature.is_ragged:
        rows, lengths = _ragged(feature, columns)
        values = list(itertools.chain.from_iterable(rows))
        return tf.RaggedTensor.from_row_lengths(
            tf.constant(values, dtype, [len(values)]), tf.constant(lengths, tf.int64)
        )
    values = list(itertools.chain.from_iterable(columns.read(feature)))
    return tf.constant(values, dtype, [columns.count, *feature.shape])


def _ragged(feature: Feature, columns: Columns) -> tuple[list[list[Any]], list[int]]:
    """Values of a feature `(None,)`, and how many each record has."""
    name = row_lengths_of(feature)
    if name not in columns.values:
        rows = columns.read(feature)
        return rows, [len(row) for row in rows]
    lengths = [length for [length] in columns.read(Feature(name, "int64"))]
    values = columns.read(dataclasses.replace(feature, shape=()), is_laid_out=True)
    if min(lengths) < 0 or sum(lengths) != len(values):
        raise unfit(
            f"{name!r} must divide the {len(values)} values of feature {feature.name!r} among the "
            f"records, but gives them {listed(lengths)}"
        )
    return values, lengths
