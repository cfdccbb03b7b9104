"""Cuts a file of rows into blocks of whole rows, to be read at the same time."""

import csv
import dataclasses
from collections.abc import Callable, Iterator

from tfps.data.row_format import BadRow, Columns, RowFormat, Values
from tfps.data.row_header import Header
from tfps.data.text_file import text_file

# What a block's rows become fits a core's cache: larger ones take longer per row.
BLOCK_BYTES = 256 << 10


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Some rows of a file.

    Attributes:
        size: Bytes that it takes of the file as it is stored.
        header: What names the file's columns; None where they stand as a format says.
    """

    path: str
    before: int
    content: bytes
    size: int
    header: Header | None = None

    def lines(self) -> list[str]:
        """Its lines; bytes that are not UTF-8 come as lone surrogates."""
        return _lines(self.content)

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        """Number of rows, and their values by field name."""
        return self._layout(row_format).read_columns(self.content.decode("utf-8"))

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[int, Values]]:
        """The rows one by one: the last line of each, and its values by field name."""
        layout = self._layout(row_format)
        return layout.read_lines(self.path, self.lines(), on_bad_row, self.before)

    def _layout(self, row_format: RowFormat) -> RowFormat:
        return self.header.layout(row_format) if self.header else row_format

    def where(self, line: int) -> str:
        """A row by its line, for messages."""
        return f"{self.path} line {line}"


def row_blocks(
    path: str, delimiter: str, block_bytes: int = BLOCK_BYTES, header: Header | None = None
) -> Iterator[RowBlock]:
    """All rows of a file, in order.

    Args:
        path: A text file, local or `gs://`; gzip when it ends in `.gz`.
        header: What stands before the first row and names the columns.
    """
    before, counted, rest = header.lines if header else 0, 0, b""
    with text_file(path) as (content, stored):
        for _ in range(before):
            content.readline()
        while True:
            read = content.read(block_bytes)
            held = rest + read
            end = _end_of_rows(held, delimiter) if read else len(held)
            block, rest = held[:end], held[end:]
            if block:
                position = stored.tell()
                yield RowBlock(path, before, block, position - counted, header)
                before += block.count(b"\n")
                counted = position
            if not read:
                return


def _end_of_rows(content: bytes, delimiter: str) -> int:
    """Where the last row that is certainly whole ends; 0 when there is none."""
    if b'"' not in content:
        return content.rfind(b"\n") + 1
    # Quoted cells may hold line ends: only csv knows where rows end. The last row may go on.
    lines = _lines(content)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    ends = [0, 0]
    while True:
        try:
            next(reader)
        except StopIteration:
            break
        except csv.Error:
            pass  # a bad row, and the end of it
        ends.append(reader.line_num)
    return len("".join(lines[: ends[-2]]).encode("utf-8", errors="surrogateescape"))


def _lines(content: bytes) -> list[str]:
    lines = content.split(b"\n")
    last = lines.pop()
    texts = [line.decode("utf-8", errors="surrogateescape") + "\n" for line in lines]
    return [*texts, last.decode("utf-8", errors="surrogateescape")] if last else texts
