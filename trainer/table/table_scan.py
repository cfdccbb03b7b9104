"""Reads a table once, in parallel, and sums up its columns."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from tfps.data import manifest, parquet
from tfps.data.examples import LISTS
from tfps.data.feature import Feature
from tfps.data.named_columns import SEPARATOR
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import Header, RowBlock, named_header, row_blocks
from tfps.data.row_format import RowFormat
from tfps.data.schema import Schema
from tfps.errors import UserError, listed
from tfps.storage import files
from trainer.console import file_progress
from trainer.datasets import data_files
from trainer.datasets.shard_scan import Processes, worthwhile
from trainer.table.column_summary import NUMBER, ColumnSummary

_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 1 << 15
_RECORDS = 4096  # that are looked at together


@dataclasses.dataclass(frozen=True)
class ShardPart:
    """A shard of a dataset."""

    path: str
    size: int
    compression: str
    features: tuple[Feature, ...]


Part = RowBlock | ParquetBlock | ShardPart


@dataclasses.dataclass
class Table:
    """What the columns of a table hold, by their names."""

    data: str
    columns: dict[str, ColumnSummary]
    bad_rows: int = 0

    @property
    def rows(self) -> int:
        return next(iter(self.columns.values())).rows

    def merge(self, columns: Mapping[str, ColumnSummary], bad_rows: int) -> None:
        self.bad_rows += bad_rows
        for name, summary in columns.items():
            if name in self.columns:
                self.columns[name].merge(summary)
            else:
                self.columns[name] = summary


def scan(data: str, flag: str, processes: int) -> Table:
    """The columns of CSV files with headers, of Parquet files, or of a dataset."""
    if manifest.is_in(data):
        dataset = manifest.read(data, flag)
        size, parts = dataset.bytes, _of_dataset(dataset)
    else:
        paths = data_files.find(data, flag)
        size, parts = sum(map(files.size, paths)), _of_files(paths)
    table = Table(data, {})
    with (
        Processes(worthwhile(processes, size), __name__) as pool,
        file_progress.shown(size) as progress,
    ):
        for columns, bad_rows, done in pool.map(summarize, parts):
            table.merge(columns, bad_rows)
            progress.add(done, f"{table.rows:,} rows")
    if not table.columns or not table.rows:
        why = f" of UTF-8 text that fits its header ({table.bad_rows:,} others)"
        raise UserError(f"{flag}={data} holds no row{why if table.bad_rows else ''}")
    return table


def summarize(part: Part) -> tuple[dict[str, ColumnSummary], int, int]:
    """The columns of a part, how many of its rows are bad, and its bytes."""
    columns: dict[str, ColumnSummary] = {}
    bad_rows = 0
    for cells, bad in _cells(part):
        bad_rows += bad
        for name, texts in cells.items():
            columns.setdefault(name, ColumnSummary(name)).add(texts)
    return columns, bad_rows, part.size


def _cells(part: Part) -> Iterator[tuple[Mapping[str, Sequence[str]], int]]:
    """The texts of a part's columns, some rows at a time."""
    if isinstance(part, RowBlock):
        assert part.header is not None
        cells, bad = part.cells()
        columns, others = _of_text(dict(zip(part.header.columns, cells, strict=True)))
        yield columns, bad + others
    elif isinstance(part, ParquetBlock):
        yield _of_text({name: _texts(part, name) for name in part.batch.schema.names})
    else:
        records = tf.data.TFRecordDataset(part.path, part.compression).batch(_RECORDS)
        for some in records.as_numpy_iterator():
            yield _of_records(some.tolist(), part.features), 0


def _of_text(
    columns: Mapping[str, Sequence[str]],
) -> tuple[Mapping[str, Sequence[str]], int]:
    """Columns without the rows that are no UTF-8 text, and how many these are."""
    bad = set[int]()
    for cells in columns.values():
        if not _is_text("".join(cells)):
            bad |= {row for row, cell in enumerate(cells) if not _is_text(cell)}
    if not bad:
        return columns, 0
    kept = [row for row in range(len(cells)) if row not in bad]
    return {name: [cells[row] for row in kept] for name, cells in columns.items()}, len(bad)


def _is_text(cell: str) -> bool:
    """Whether it was UTF-8: other bytes have become lone surrogates."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(block: ParquetBlock, name: str) -> Sequence[str]:
    cells = parquet.cell_texts(block.path, name, block.batch.column(name))
    return [cell.strip() if isinstance(cell, str) else SEPARATOR.join(cell) for cell in cells]


def _of_records(
    records: Sequence[bytes], features: Sequence[Feature]
) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = collections.defaultdict(list)
    for record in records:
        held = tf.train.Example.FromString(record).features.feature
        for each in features:
            values = getattr(held[each.name], LISTS[each.dtype]).value if each.name in held else ()
            found[each.name].append(SEPARATOR.join(map(_text, values)))
    return found


def _text(value: bytes | float) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace").strip()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _of_dataset(dataset: manifest.Manifest) -> Iterator[Part]:
    features = Schema.of(dataset).all
    for shard in dataset.shards:
        if shard.records:
            yield ShardPart(dataset.path_of(shard), shard.bytes, shard.compression, features)


def _of_files(paths: Sequence[str]) -> Iterator[Part]:
    """The blocks of files, which must all have the columns of the first."""
    first: list[str] = []
    for path in paths:
        is_parquet = parquet.is_parquet(path)
        header = None if is_parquet else named_header(path, first)
        names = header.columns if header else parquet.column_names(path)
        if not _is_text("".join(names)):
            raise UserError(
                f"{path}: the names of its columns are no UTF-8 text; convert it, such as with "
                "`iconv -f latin1 -t utf-8`"
            )
        first = first or list(names)
        if set(names) != set(first):
            apart = sorted(set(names) ^ set(first))
            raise UserError(
                f"{path} and {paths[0]} differ in the column {listed(apart)}; analyze them one by "
                "one"
            )
        if header is None:
            yield from parquet.parquet_blocks(path, RowFormat(), names, _BLOCK_ROWS)
        else:
            header.check_once()
            _refuse_row(header)
            yield from row_blocks(path, header.delimiter, _BLOCK_BYTES, header)


def _refuse_row(header: Header) -> None:
    """Refuses a first line that names no columns."""
    for cell in header.columns:
        if not cell or NUMBER.match(cell):
            raise UserError(
                f"{header.where} names the columns, but {cell!r} is no name; add a line with the "
                "columns' names to the file"
            )
