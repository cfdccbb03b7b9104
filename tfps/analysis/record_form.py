"""The records of a model: typed by hand, in parts that can be exchanged, and named."""

import csv
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import examples
from tfps.data.feature import Feature
from tfps.data.named_columns import with_missing
from tfps.data.row_blocks import RowBlock
from tfps.data.row_format import BadRow, RowFormat
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.export.loaded_model import ExportedModel

# By feature name, each `[n, *shape]`: a `tf.RaggedTensor` for shape `(None,)`, else an array.
Records = Mapping[str, Any]

_MOST_VALUES = 64  # of a vector whose values are parts of their own
_OTHER = "other"  # a token without a word in the vocabulary
_RANGES = 4  # into which numbers are cut, with as many records each
_MOST_LETTERS = 40
_MOST_LISTED = 3


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value is in a record; the index counts the feature's values, None for all of them."""

    feature: str
    index: int | None = None


class Part(NamedTuple):
    """Values of a record that belong together, such as an age and its bucket."""

    name: str
    places: tuple[Place, ...]


def take(records: Records, numbers: Sequence[int] | npt.NDArray[np.int64]) -> dict[str, Any]:
    """The records of these numbers, in any order; one may be taken several times."""
    wanted = np.asarray(numbers, np.int64)
    return {
        name: tf.gather(values, wanted)
        if isinstance(values, tf.RaggedTensor)
        else np.asarray(values)[wanted]
        for name, values in records.items()
    }


def exchanged(records: Records, part: Part, others: Records) -> dict[str, Any]:
    """The records with one part taken from as many others; `records` stay as they are."""
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


@dataclasses.dataclass(frozen=True)
class RecordForm:
    """What a model's records hold."""

    features: tuple[Feature, ...]  # of a config, with the tokens of their vocabularies
    labels: tuple[Feature, ...]
    row_format: RowFormat | None = None  # None without a config that reads rows

    @classmethod
    def of(cls, model: ExportedModel, config: str = "", sets: Sequence[str] = ()) -> Self:
        """The form of a model's records; with the config it was trained with, also of rows."""
        if not config:
            return cls(model.features, model.labels)
        task = overrides.apply(overrides.load(config), sets).task
        features, labels = (
            [each.schema() for each in some] for some in (task.features(), task.labels())
        )
        model.check_schema(features, labels, f"the config {config}")
        return cls(task.features(), task.labels(), task.rows())

    @property
    def parts(self) -> list[Part]:
        """The parts of a record.

        What is made of one column of a row is one part, such as an age and its bucket. Without
        columns each feature is a part; of a vector of up to 64 values each value is one, as
        NAME[0], NAME[1] and so on.
        """
        fields = self.row_format.fields if self.row_format else {}
        found: dict[str, list[Place]] = {}
        for feature in self.features:
            columns: Sequence[str] = (feature.name,)
            if feature.name in fields:
                columns = fields[feature.name].columns
            elif feature.shape and feature.size is not None and feature.size <= _MOST_VALUES:
                columns = [f"{feature.name}[{k}]" for k in range(feature.size)]
            is_cut = bool(feature.shape) and feature.size == len(columns)
            for index, column in enumerate(columns):
                place = Place(feature.name, index if is_cut else None)
                found.setdefault(column, []).append(place)
        return [Part(name, tuple(places)) for name, places in found.items()]

    def part(self, name: str) -> Part:
        """The part of a name; a `UserError` names those that there are."""
        found = {part.name: part for part in self.parts}
        if name not in found:
            raise UserError(f"records have no part {name!r}; they have {', '.join(found)}")
        return found[name]

    def typed(self, rows: Sequence[str | Mapping[str, Any]]) -> dict[str, Any]:
        """Records written by hand: a row of text in the config's format, or values by feature name.

        A row may have the labels' columns. A value is a number, a text, or a list of them.
        """
        if not rows:
            raise UserError("no record is given")
        encoded = []
        for number, row in enumerate(rows, start=1):
            where = f"record {number}"
            values = self._read(where, row) if isinstance(row, str) else _as_bytes(row)
            try:
                encoded.append(examples.encode(values, self.features))
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
        parsed, _ = examples.parse(tf.constant(encoded), self.features)
        return {
            name: values if isinstance(values, tf.RaggedTensor) else values.numpy()
            for name, values in parsed.items()
        }

    def cells(self, row: str) -> dict[str, str]:
        """The cells of a row of text, by column."""
        layout = self._layout("the row", row)
        cells = _cells(row, layout)
        return dict(zip(layout.columns, map(str.strip, cells), strict=False))

    def names(self, records: Records, part: str) -> npt.NDArray[np.str_]:
        """What a part of each record is called: a token, an id, a text, or the range of a number.

        Of a part with several places one with tokens is taken, or else one with ids.
        """
        place = min(self.part(part).places, key=lambda place: self._rank(place.feature))
        feature, index = self._feature(place.feature), place.index
        values = records[feature.name]
        if isinstance(values, tf.RaggedTensor):
            return np.array([_listed(row, feature) for row in values.to_list()])
        flat = np.asarray(values).reshape(len(values), -1)
        if index is None and flat.shape[1] > 1:
            return np.array([_listed(row, feature) for row in flat.tolist()])
        column = flat[:, index or 0]
        if feature.dtype == "float32" and len(np.unique(column)) > 2 * _RANGES:
            return _ranges(column)
        return np.array([_text(value, feature) for value in column.tolist()])

    def rows(
        self, count: int | None, part: str, records: Records, most: int
    ) -> tuple[npt.NDArray[Any], list[str]]:
        """Ids of up to `most` rows of a table, and what they are called.

        Args:
            count: How many rows the table has; None for one without a vocabulary. Its ids are the
                values that records have most often in the part.
            part: Whose values are the table's ids; "" for no names, or the first part with ids.
            records: By feature name.
            most: How many ids.
        """
        if count is None:
            return self._most_frequent(part, records, most)
        ids = np.arange(min(count, most))
        for place in self.part(part).places if part else ():
            feature = self._feature(place.feature)
            if feature.vocabulary_size == count:
                return ids, [_text(row, feature) for row in ids.tolist()]
        return ids, list(map(str, ids.tolist()))

    def _most_frequent(
        self, part: str, records: Records, most: int
    ) -> tuple[npt.NDArray[Any], list[str]]:
        parts = [self.part(part)] if part else self.parts
        features = [self._feature(place.feature) for each in parts for place in each.places]
        keys = [each for each in features if each.dtype != "float32" and not each.vocabulary]
        if not keys:
            where = f"part {part!r} has" if part else "records have"
            raise UserError(
                f"a table without a vocabulary has numbers or texts as ids; {where} none"
            )
        values = records[keys[0].name]
        flat = values.flat_values.numpy() if isinstance(values, tf.RaggedTensor) else values
        ids, counts = np.unique(np.asarray(flat).reshape(-1), return_counts=True)
        ids = ids[np.argsort(-counts, kind="stable")][:most]
        return ids, [_text(each, keys[0]) for each in ids.tolist()]

    def _feature(self, name: str) -> Feature:
        return next(feature for feature in self.features if feature.name == name)

    def _rank(self, name: str) -> int:
        feature = self._feature(name)
        return 0 if isinstance(feature.vocabulary, tuple) else 2 - (feature.dtype != "float32")

    def _read(self, where: str, text: str) -> Mapping[str, Any]:
        content = text.encode("utf-8", errors="surrogateescape")
        layout = self._layout(where, text)
        [(_, values)] = RowBlock(where, 0, content, len(content)).rows(layout, _refuse)
        return values

    def _layout(self, where: str, text: str) -> RowFormat:
        """That of a row: with the labels' columns if it has as many cells."""
        if self.row_format is None or not self.row_format.columns:
            raise UserError(
                f"{where} is a row of text, which only a config with rows() reads; name it, or "
                "give the record as a dict of its features"
            )
        full = self.row_format
        if len(_cells(text, full)) < len(full.columns):
            full = full.without([label.name for label in self.labels])
        return with_missing(full.only([each.name for each in self.features]), self.features)


def _cells(row: str, layout: RowFormat) -> list[str]:
    return next(csv.reader([row], delimiter=layout.delimiter, skipinitialspace=True), [])


def _refuse(bad: BadRow) -> NoReturn:
    raise bad


def _as_bytes(record: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a record holds them: text in UTF-8."""

    def converted(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode()
        return list(map(converted, value)) if isinstance(value, (list, tuple)) else value

    return {name: converted(value) for name, value in record.items()}


def _text(value: Any, feature: Feature) -> str:
    if isinstance(feature.vocabulary, tuple):
        return feature.vocabulary[value - 1] if value else _OTHER
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


def _listed(values: Sequence[Any], feature: Feature) -> str:
    more = "…" if len(values) > _MOST_LISTED else ""
    return ", ".join(_text(value, feature) for value in values[:_MOST_LISTED]) + more


def _ranges(values: npt.NDArray[np.float32]) -> npt.NDArray[np.str_]:
    """The range of each number, of some with as many records each."""
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, _RANGES + 1)))
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    texts = [f"{low:.3g} to {high:.3g}" for low, high in itertools.pairwise(edges)]
    return np.array(texts)[places]
