"""How the rows of a file to predict are laid out: by a task, a header, or Parquet's columns."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from tfps.data import parquet
from tfps.data.converters import integer, number
from tfps.data.feature import Feature
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import Header, RowBlock, find_header, first_line, listed, row_blocks
from tfps.data.row_format import BadRow, Field, RowFormat, Value
from tfps.errors import UserError

_CONVERTERS: dict[str, Callable[[str], Value]] = {
    "int64": integer,
    "float32": number,
    "string": lambda text: text.encode("utf-8"),
}
_SEPARATOR = "|"  # between the values of a cell, for features that vary in length


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The layout of one file.

    Attributes:
        row_format: Where the features stand, and the labels, if there are any. Of a text file also
            the kept columns, as fields of the names that `kept_field` gives.
        header: What names the columns of a text file; None where they stand as the format says.
    """

    path: str
    row_format: RowFormat
    is_labelled: bool
    keep: Sequence[str]
    header: Header | None = None
    is_parquet: bool = False

    def blocks(self, most: int) -> Iterator[RowBlock | ParquetBlock]:
        """All rows, in order.

        Args:
            most: How many rows a block of a Parquet file has, at most.
        """
        if self.is_parquet:
            return parquet.parquet_blocks(self.path, self.row_format, self.keep, most)
        delimiter = self.row_format.delimiter
        return row_blocks(self.path, delimiter, header=self.header)


def kept_field(column: str) -> str:
    """The name of the field that copies a text file's column; features have others."""
    return f"--keep={column}"


class RowLayouts:
    """Finds out how files are laid out.

    Attributes:
        features: What a record must hold.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        labels: Sequence[Feature],
        row_format: RowFormat | None,
        keep: Sequence[str] = (),
        max_bad_rows: int = 0,
    ):
        """Looks at no file yet.

        Args:
            features: What a record must hold.
            row_format: The layout of files, the labels' columns optional; None for comma-separated
                (`.tsv`: tab-separated) files whose header names the features, and for Parquet files
                whose columns do.
            max_bad_rows: How many rows of a file may be bad before it is said not to fit.
        """
        self.features = features
        self.labels = labels
        self.max_bad_rows = max_bad_rows
        self._row_format = row_format
        self._keep = tuple(keep)

    def of(self, path: str) -> RowLayout:
        """The layout of one file.

        Args:
            path: A text file, gzip when it ends in `.gz`, or a Parquet file; local or `gs://`.
        """
        if parquet.is_parquet(path):
            return self._of_parquet(path)
        if self._row_format is None:
            return self._of_header(path)
        return self._of_first_row(path, self._row_format)

    def _of_parquet(self, path: str) -> RowLayout:
        columns = parquet.column_names(path)
        if self._row_format is None:
            fields = {each.name: _field(each, columns) for each in self.features}
            labels = {each.name: _field(each, columns) for each in self.labels}
        else:
            fields = dict(self._row_format.only([each.name for each in self.features]).fields)
            known = [e.name for e in self.labels if e.name in self._row_format.fields]
            labels = dict(self._row_format.only(known).fields)
        is_labelled = len(labels) == len(self.labels) and _has_any(labels.values(), columns)
        fields.update(labels if is_labelled else {})
        self._check_kept(path, columns)
        wanted = {column: None for field in fields.values() for column in field.columns}
        missing = [column for column in wanted if column not in columns]
        if missing and self._row_format is None:
            raise UserError(
                f"{path}: the columns do not name the model's features: it lacks "
                f"{listed(missing)} (it has {listed(columns)}). Rename them, or give --config"
            )
        row_format = RowFormat(tuple(wanted), ",", fields)
        return RowLayout(path, row_format, is_labelled, self._keep, is_parquet=True)

    def _of_header(self, path: str) -> RowLayout:
        """The layout that a file's header describes."""
        delimiter = "\t" if path.removesuffix(".gz").endswith(".tsv") else ","
        found = first_line(path, delimiter)
        if found is None:
            raise UserError(f"{path} is empty; its first line must name the features")
        where, header = f"{path} line {found.lines}", found.columns
        fields = {feature.name: _field(feature) for feature in self.features}
        labels = {label.name: _field(label) for label in self.labels}
        is_labelled = _has_any(labels.values(), header)
        fields.update(labels if is_labelled else {})
        self._check_kept(where, header)
        wanted = [column for field in fields.values() for column in field.columns]
        _check_header(where, header, wanted, self._keep)
        found.check_once()
        row_format = RowFormat(header, delimiter, {**fields, **self._kept_fields()})
        return RowLayout(path, row_format, is_labelled, self._keep, found)

    def _of_first_row(self, path: str, full: RowFormat) -> RowLayout:
        """The layout with the labels' columns or without them, whichever the first row has."""
        names = [feature.name for feature in self.features]
        features_only = full.only(names)
        label_names = [label.name for label in self.labels]
        has_labels = all(name in full.fields for name in label_names)
        if header := find_header(path, full):
            labels = [full.fields[name] for name in label_names] if has_labels else []
            is_labelled = _has_any(labels, header.columns)
            needed = full.only([*names, *label_names]) if is_labelled else features_only
            return self._of_format(path, header.layout(needed), is_labelled, header)
        if not has_labels:
            return self._of_format(path, features_only, False)
        full = full.only([*names, *label_names])
        unlabelled = full.without(label_names)
        if self._fits(path, full) or not self._fits(path, unlabelled):
            return self._of_format(path, full, True)
        return self._of_format(path, unlabelled, False)

    def _of_format(
        self, path: str, row_format: RowFormat, is_labelled: bool, header: Header | None = None
    ) -> RowLayout:
        self._check_kept(path, row_format.columns)
        fields = {**row_format.fields, **self._kept_fields()}
        with_kept = dataclasses.replace(row_format, fields=fields)
        return RowLayout(path, with_kept, is_labelled, self._keep, header)

    def _kept_fields(self) -> dict[str, Field]:
        as_it_stands = cast(Any, str)  # which no record holds, other than what converters give
        return {kept_field(column): Field((column,), as_it_stands) for column in self._keep}

    def _check_kept(self, where: str, columns: Sequence[str]) -> None:
        missing = [column for column in self._keep if column not in columns]
        if missing:
            raise UserError(
                f"{where}: there is no column {listed(missing)}, which --keep names; the columns "
                f"are {listed(columns, 20)}"
            )

    def _fits(self, path: str, row_format: RowFormat) -> bool:
        """Whether a row has the layout's number of columns, before too many have not."""
        bad_rows: list[BadRow] = []

        def on_bad_row(bad: BadRow) -> None:
            bad_rows.append(bad)
            if len(bad_rows) > self.max_bad_rows:
                raise bad

        try:
            rows = dataclasses.replace(row_format, fields={}).read(path, on_bad_row)
            return next(rows, None) is not None
        except BadRow:
            return False


def _field(feature: Feature, columns: Sequence[str] = ()) -> Field:
    """Where a feature stands: NAME, or NAME_0, NAME_1, … for a vector."""
    own: tuple[str, ...] = (feature.name,)
    convert = _CONVERTERS[feature.dtype]
    if feature.is_ragged:
        return Field(own, convert, _SEPARATOR)
    if feature.size is None or not feature.shape:
        return Field(own, convert)
    if feature.name in columns:
        return Field(own, convert, _SEPARATOR)
    return Field(tuple(f"{feature.name}_{index}" for index in range(feature.size)), convert)


def _has_any(fields: Iterable[Field], columns: Sequence[str]) -> bool:
    return any(set(field.columns) & set(columns) for field in fields)


def _check_header(
    where: str, header: Sequence[str], wanted: Sequence[str], keep: Sequence[str]
) -> None:
    """Refuses a header that lacks a column, has an unknown one, or one twice."""
    missing = [name for name in wanted if name not in header]
    unknown = [name for name in header if name not in wanted and name not in keep]
    if missing or unknown:
        parts = [
            f"{text} {listed(names)}"
            for text, names in (("it lacks", missing), ("it has the unknown", unknown))
            if names
        ]
        raise UserError(
            f"{where}: the header does not name the model's features: {' and '.join(parts)}. "
            "Mend it, copy other columns with --keep, or, for a file without a header, give "
            "--config"
        )
