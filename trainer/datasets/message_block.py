"""Messages that are JSON objects, as rows."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cloud import optional_imports
from tfps.data.parquet import ParquetBlock
from tfps.data.row_format import BadRow, Columns, RowFormat, Values
from trainer.datasets.kafka_messages import Message, Partition
from trainer.datasets.row_layout import RowLayout

Row = Mapping[str, Any]  # a message's columns


@dataclasses.dataclass(frozen=True)
class MessageBlock(ParquetBlock):
    """Some messages of a partition; `before` is not used."""

    offsets: Sequence[int] = ()
    wrong: Sequence[BadRow] = ()  # messages that are no rows

    @classmethod
    def of(
        cls,
        partition: Partition,
        rows: Sequence[tuple[int, Row]],
        wrong: Sequence[BadRow],
        layout: RowLayout,
        size: int,
    ) -> "MessageBlock":
        """Offsets with rows, and what is none, of so many bytes."""
        arrow = optional_imports.load("pyarrow", "kafka")
        wanted = [name for each in layout.features for name in layout.columns_of(each)]
        wanted += [each.name for each in layout.kept]
        names = dict.fromkeys([*wanted, *(name for _, row in rows for name in row)])
        columns = {name: _column(arrow, [row.get(name) for _, row in rows]) for name in names}
        batch = arrow.RecordBatch.from_pydict(columns)
        return cls(str(partition), 0, batch, size, [offset for offset, _ in rows], wrong)

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        if self.wrong:
            raise ValueError("some messages are no rows")
        return super().columns(row_format)

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[int, Values]]:
        for each in self.wrong:
            on_bad_row(each)
        yield from super().rows(row_format, on_bad_row)

    def where(self, number: int) -> str:
        return f"{self.path} offset {self.offsets[number - 1]}"


def row_of(partition: Partition, message: Message) -> Row:
    """The columns of a message.

    Raises:
        BadRow: If it is no row.
    """
    where = f"{partition} offset {message.offset}"
    try:
        found = json.loads(message.content)
        if b"\\u" in message.content or b"\xed" in message.content:
            json.dumps(found, ensure_ascii=False).encode()  # half a pair of surrogates is no text
    except (ValueError, RecursionError) as error:
        raise BadRow(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise BadRow(f"{where}: is no JSON object")
    for name, value in found.items():
        cells = value if isinstance(value, list) else [value]
        if any(isinstance(cell, dict | list) for cell in cells):
            what = "an object" if isinstance(value, dict) else "a list of objects or lists"
            raise BadRow(f"{where}: column {name!r} is {what}, not a cell or a list of them")
    return found


def _column(arrow: Any, values: Sequence[Any]) -> Any:
    """The cells of a column; as text where messages do not agree on their type."""
    try:
        return arrow.array(values)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):  # the last of 2^63
        return arrow.array([None if value is None else _text(value) for value in values])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
