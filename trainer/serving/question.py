"""What a request asks a model: its records, read from JSON in rows or in columns."""

import dataclasses
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import tensorflow as tf

from tfps.data.bad_records import find_problem
from tfps.data.feature import Feature
from tfps.errors import listed
from tfps.export.exported_files import EXAMPLES_INPUT, EXAMPLES_SIGNATURE, FEATURES_SIGNATURE
from tfps.export.loaded_model import ExportedModel, RefusedRecordsError
from tfps.model.inputs import row_lengths_of, signature_specs
from trainer.serving.json_values import (
    MOST_SHOWN,
    RefusedError,
    UnfitValueError,
    flat_values,
    is_encoded,
    shown,
)
from trainer.serving.raw_rows import ROWS_SIGNATURE, RawRows

_SIGNATURE, _ROWS, _COLUMNS = "signature_name", "instances", "inputs"
_EXAMPLES = (Feature(EXAMPLES_INPUT, "string"),)
_DTYPES = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}


@dataclasses.dataclass(frozen=True)
class Question:
    """Records for a model, in the form of one of its signatures."""

    signature: str
    has_rows: bool
    values: Mapping[str, Any]  # tensors `[n, *shape]` by input, ragged for shape `(None,)`

    def ask(self, model: ExportedModel) -> dict[str, Any]:
        """The model's answer: arrays `[n, ...]` float32 by name."""
        try:
            if self.signature == EXAMPLES_SIGNATURE:
                return model.predict_examples(self.values[EXAMPLES_INPUT].numpy().tolist())
            return model.predict(self.values)
        except RefusedRecordsError as error:
            raise RefusedError(f"the model refuses these records: {error.reason}") from None


def read_question(
    body: bytes, model: ExportedModel, max_batch: int, rows: RawRows | None = None
) -> Question:
    """What a request's body asks, which is a JSON object in UTF-8; with `rows` by raw rows."""
    document = _parse(body)
    unknown = [key for key in document if key not in (_SIGNATURE, _ROWS, _COLUMNS)]
    if unknown:
        raise RefusedError(
            f"the body has the key {shown(unknown[0])}; "
            f'it may have "{_ROWS}" or "{_COLUMNS}", and "{_SIGNATURE}"'
        )
    signature = _signature(document, model, rows)
    if signature == ROWS_SIGNATURE and rows:
        return _of_raw_rows(document, rows, max_batch)
    features = _EXAMPLES if signature == EXAMPLES_SIGNATURE else model.features
    if (_ROWS in document) == (_COLUMNS in document):
        state = "both" if _ROWS in document else "neither"
        raise RefusedError(
            f'the body has {state} of "{_ROWS}" and "{_COLUMNS}"; it must have one of them'
        )
    has_rows = _ROWS in document
    read = _of_rows if has_rows else _of_columns
    columns = read(document[_ROWS if has_rows else _COLUMNS], features)
    _check_count(columns.count, max_batch)
    values = {feature.name: columns.tensor(feature) for feature in features}
    if signature == EXAMPLES_SIGNATURE:
        check_examples(values[EXAMPLES_INPUT].numpy().tolist(), model.features, has_rows)
    return Question(signature, has_rows, values)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise RefusedError(
            f"the request has {count:,} records, and this server takes up to {most:,} at once "
            "(--max_batch)",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )


def _of_raw_rows(document: Mapping[str, Any], rows: RawRows, max_batch: int) -> Question:
    if _ROWS not in document or _COLUMNS in document:
        raise RefusedError(
            f'raw rows are given as "{_ROWS}", a list of objects; for the model\'s own features '
            f'add "{_SIGNATURE}": "{FEATURES_SIGNATURE}"'
        )
    given = document[_ROWS]
    if not isinstance(given, list) or not given:
        raise RefusedError(f'"{_ROWS}" is {shown(given)}, not a list of rows')
    for index, each in enumerate(given):
        if not _is_object(each):
            raise RefusedError(
                f"{_ROWS}[{index}] is {shown(each)}, not an object with the columns "
                f"{listed(rows.columns)}"
            )
    _check_count(len(given), max_batch)
    return Question(ROWS_SIGNATURE, True, rows.features(given))


@dataclasses.dataclass(frozen=True)
class _Columns:
    """What a request gives for each input, as JSON: a value for each record.

    Where the row lengths of a feature `(None,)` are given, as the signature has them, its values
    are those of all records laid end to end.
    """

    values: Mapping[str, Sequence[Any]]
    has_rows: bool
    count: int

    def tensor(self, feature: Feature) -> Any:
        """All records' values of a feature."""
        dtype = _DTYPES[feature.dtype]
        rows, lengths = self._ragged(feature) if feature.is_ragged else (self._read(feature), [])
        values = list(itertools.chain.from_iterable(rows))
        if not feature.is_ragged:
            return tf.constant(values, dtype, [self.count, *feature.shape])
        return tf.RaggedTensor.from_row_lengths(
            tf.constant(values, dtype, [len(values)]), tf.constant(lengths, tf.int64)
        )

    def _ragged(self, feature: Feature) -> tuple[list[list[Any]], list[int]]:
        """Values of a feature `(None,)`, and how many each record has."""
        name = row_lengths_of(feature)
        if name not in self.values:
            rows = self._read(feature)
            return rows, [len(row) for row in rows]
        lengths = [length for [length] in self._read(Feature(name, "int64"))]
        values = self._read(dataclasses.replace(feature, shape=()), is_laid_out=True)
        if min(lengths) < 0 or sum(lengths) != len(values):
            raise RefusedError(
                f"{name!r} must divide the {len(values)} values of feature {feature.name!r} among "
                f"the records, but gives them {listed(map(str, lengths))}"
            )
        return values, lengths

    def _read(self, feature: Feature, is_laid_out: bool = False) -> list[list[Any]]:
        found = []
        for index, value in enumerate(self.values[feature.name]):
            try:
                found.append(flat_values(value, feature))
            except UnfitValueError as error:
                place = f"inputs: feature {feature.name!r} of record {index}"
                if self.has_rows:
                    place = f"instances[{index}]: feature {feature.name!r}"
                elif is_laid_out:
                    place = f"inputs: value {index} of feature {feature.name!r}"
                raise RefusedError(f"{place} {error}") from None
        return found


def _parse(body: bytes) -> dict[str, Any]:
    """`NaN`, `Infinity` and `-Infinity` are numbers, as in TensorFlow Serving."""
    if not body:
        raise RefusedError('the body is empty; send a JSON object with "instances" or "inputs"')
    try:
        text = body.decode("utf-8-sig")
        document = json.loads(text, object_pairs_hook=_object, parse_float=_decimal)
    except UnicodeDecodeError as error:
        raise RefusedError(
            f"the body is not UTF-8 at byte {error.start}; give values that are not text as "
            '{"b64": "..."}'
        ) from None
    except json.JSONDecodeError as error:
        raise RefusedError(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError:  # of Python, for a whole number of thousands of digits
        raise RefusedError("a whole number of the body has too many digits") from None
    except RecursionError:
        raise RefusedError("the body is nested too deeply") from None
    if not isinstance(document, dict):
        raise RefusedError(
            f'the body is {shown(document)}, not a JSON object with "instances" or "inputs"'
        )
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RefusedError(f"an object of the body has the key {shown(twice)} twice")
    return found


def _decimal(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise RefusedError(f"the body has {text[:MOST_SHOWN]}, which is too large for float32")
    return value


def _signature(document: Mapping[str, Any], model: ExportedModel, rows: RawRows | None) -> str:
    """The name that a request gives; without one raw rows where the server takes them."""
    default = ROWS_SIGNATURE if rows else FEATURES_SIGNATURE
    known = (*model.signatures, ROWS_SIGNATURE) if rows else model.signatures
    name = document.get(_SIGNATURE, default)
    if not isinstance(name, str):
        raise RefusedError(f'"{_SIGNATURE}" is {shown(name)}, not a string')
    name = name or default
    if name not in known:
        raise RefusedError(f'"{_SIGNATURE}" is {shown(name)}; the model has {listed(known)}')
    return name


def _of_rows(instances: Any, features: Sequence[Feature]) -> _Columns:
    if not isinstance(instances, list):
        raise RefusedError(f'"instances" is {shown(instances)}, not a list of records')
    if not instances:
        raise RefusedError('"instances" has no record')
    if not _is_object(instances[0]):
        name = _single_input(features, "instances[0]", instances[0])
        for row, instance in enumerate(instances):
            if _is_object(instance):
                raise RefusedError(
                    f"instances[{row}] is an object, but instances[0] is a bare value"
                )
        return _Columns({name: instances}, True, len(instances))
    first = instances[0].keys()
    for row, instance in enumerate(instances):
        if not _is_object(instance):
            raise RefusedError(
                f"instances[{row}] is {shown(instance)}, but instances[0] is an object"
            )
        _check_names(instance, features, f"instances[{row}]")
        if instance.keys() != first:
            [name, *_] = sorted(instance.keys() ^ first)
            state = "given" if name in instance else "missing"
            raise RefusedError(
                f"instances[{row}]: input {name!r} is {state}, unlike in instances[0]"
            )
    columns = {name: [instance[name] for instance in instances] for name in first}
    return _Columns(columns, True, len(instances))


def _of_columns(inputs: Any, features: Sequence[Feature]) -> _Columns:
    if not _is_object(inputs):
        inputs = {_single_input(features, '"inputs"', inputs): inputs}
    _check_names(inputs, features, "inputs")
    for name, value in inputs.items():
        if not isinstance(value, list):
            raise RefusedError(
                f"inputs: feature {name!r} is {shown(value)}, not a list with a value per record"
            )
    laid_end_to_end = {feature.name for feature in features if row_lengths_of(feature) in inputs}
    counts = {name: len(value) for name, value in inputs.items() if name not in laid_end_to_end}
    first, count = next(iter(counts.items()))
    for name, other in counts.items():
        if other != count:
            raise RefusedError(f"inputs: {name!r} has {other} records, but {first!r} has {count}")
    if not count:
        raise RefusedError('"inputs" has no record')
    return _Columns(inputs, False, count)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_encoded(value)


def _single_input(features: Sequence[Feature], where: str, value: Any) -> str:
    """The name of the one input, which may be left out."""
    names = list(signature_specs(features))
    if len(names) > 1:
        raise RefusedError(
            f"{where} is {shown(value)}, not an object with the inputs {listed(names)}"
        )
    return names[0]


def _check_names(given: Collection[str], features: Sequence[Feature], where: str) -> None:
    allowed = signature_specs(features)
    unknown = [name for name in given if name not in allowed]
    if unknown:
        raise RefusedError(
            f"{where}: {shown(unknown[0])} is no input of the model, which has {listed(allowed)}"
        )
    missing = [feature.name for feature in features if feature.name not in given]
    if missing:
        raise RefusedError(f"{where}: feature {missing[0]!r} is missing")


def check_examples(
    serialized: Sequence[bytes], features: Sequence[Feature], has_rows: bool
) -> None:
    """Refuses what is no serialized `tf.train.Example` of some features."""
    for row, content in enumerate(serialized):
        if problem := find_problem(content, features):
            place = f"instances[{row}]" if has_rows else f"inputs: record {row}"
            raise RefusedError(f"{place} {problem}")
