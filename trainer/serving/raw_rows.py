"""Raw rows of a request, which the config's `rows()` converts to a model's features."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from tfps.data import examples
from tfps.data.row_blocks import listed
from tfps.data.row_format import BadRow, Cell, Field
from tfps.errors import UserError
from tfps.experiment.task import Task
from trainer.datasets.row_layout import RowLayout
from trainer.serving.json_values import (
    RefusedError,
    UnfitValueError,
    bytes_of,
    is_encoded,
    shown,
)

ROWS_SIGNATURE = "rows"  # beside those of the model


@dataclasses.dataclass(frozen=True)
class RawRows:
    """Converts the rows of a request as `trainer.predict --config` converts those of a file."""

    layout: RowLayout

    @classmethod
    def of(cls, task: Task) -> Self:
        if task.rows() is None:
            raise UserError(
                "--config: its task has no rows(), so the model takes raw values as they are; "
                "leave --config out"
            )
        return cls(RowLayout(task.rows(), task.features()))

    @property
    def columns(self) -> dict[str, list[str]]:
        """The features that are made of each column."""
        found: dict[str, list[str]] = {}
        for feature in self.layout.features:
            for column in self.layout.columns_of(feature):
                found.setdefault(column, []).append(feature.name)
        return found

    def features(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Tensors `[n, *shape]` by feature name, ragged for shape `(None,)`.

        Columns that nothing is made of are not read, as in a file.
        """
        try:
            found = self.layout.of_columns("instances[0]", tuple(rows[0]))
        except UserError as error:
            raise RefusedError(str(error)) from None
        columns = {name: field for field in found.fields.values() for name in field.columns}
        records = []
        for index, row in enumerate(rows):
            where = f"instances[{index}]"
            if missing := [name for name in columns if name not in row]:
                raise RefusedError(f"{where}: column {listed(missing, 12)} is missing")
            cells = {name: _cell(where, name, row[name], each) for name, each in columns.items()}
            try:
                values = found.convert_row(where, cells)
                records.append(examples.encode(values, self.layout.features))
            except UserError as error:
                place = "" if isinstance(error, BadRow) else f"{where}: "
                raise RefusedError(f"{place}{error}") from None
        return examples.parse(tf.constant(records), self.layout.features)[0]


def _cell(where: str, column: str, value: Any, field: Field) -> Cell:
    """A JSON value as a file's cell: missing is empty, bytes in base64 are as if read of a file."""
    try:
        if isinstance(value, list) and field.separator is not None:
            return [_text(each) for each in value]
        return _text(value)
    except UnfitValueError as error:
        raise RefusedError(f"{where}: column {column!r} {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return "" if value is None else str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if is_encoded(value):
        return bytes_of(value).decode("utf-8", errors="surrogateescape")
    raise UnfitValueError(f"is {shown(value)}, not a cell such as text, a number or null")
