"""Where the values of a record are in a file of rows."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Self

from tfps.data.converters import text
from tfps.data.feature import Feature
from tfps.data.named_columns import field_of, named_format, with_missing
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import Header, RowBlock, find_header, listed, named_header
from tfps.data.row_format import Field, RowFormat
from tfps.errors import UserError
from tfps.experiment.task import Task

Block = RowBlock | ParquetBlock


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """Where features and labels are: as `rows()` says, or else in columns of their names."""

    rows: RowFormat | None
    features: tuple[Feature, ...]  # and labels
    kept: tuple[Feature, ...] = ()  # other columns, as they are

    @classmethod
    def of(cls, task: Task, keep: Sequence[str] = ()) -> Self:
        """That of all that a task's records hold, and of columns to keep."""
        held = task.schema().all
        for column in keep:
            if column in [each.name for each in held]:
                raise UserError(f"--keep={column}: the records hold it already, as a feature")
        kept = tuple(Feature(column, "string") for column in keep)
        return cls(task.rows(), held, kept)

    @property
    def all(self) -> tuple[Feature, ...]:
        return (*self.features, *self.kept)

    @property
    def is_named(self) -> bool:
        """Whether columns are found by their names alone."""
        return self.rows is None or not self.rows.columns

    @functools.cached_property
    def _with_places(self) -> RowFormat:
        """What `rows()` says of these features."""
        assert self.rows is not None
        found = self.rows.only([each.name for each in self.features])
        return with_missing(found, self.features)

    @property
    def _given(self) -> Mapping[str, Field]:
        """The fields that `rows()` says, of a file whose columns are named."""
        held = self.rows.fields if self.rows else {}
        return {each.name: held[each.name] for each in self.features if each.name in held}

    def columns_of(self, feature: Feature, columns: Sequence[str] = ()) -> Sequence[str]:
        """Where a feature is in a file with these columns; nowhere if `rows()` does not say it."""
        if self.rows is None or (self.is_named and feature.name not in self.rows.fields):
            return field_of(feature, columns).columns
        return self.rows.fields[feature.name].columns if feature.name in self.rows.fields else ()

    def header(self, path: str) -> Header | None:
        """The header of a text file; None where its first line is a row."""
        if self.rows is not None and self.rows.columns:
            return find_header(path, self.rows)
        names = [name for each in self.features for name in self.columns_of(each)[:1]]
        return named_header(path, [*names, *(each.name for each in self.features)])

    def of_header(self, header: Header | None) -> RowFormat:
        """The format of a text file with this header, or without one."""
        if header is None:
            found = self._with_places
            return self._with_kept("rows() without a header", found, found.columns)
        header.check_once()
        found = header.layout(self._of_names(header.where, header.columns, header.delimiter))
        return self._with_kept(header.where, found, header.columns)

    def of_columns(self, where: str, columns: Sequence[str]) -> RowFormat:
        """The format of a Parquet file with these columns."""
        return self._with_kept(where, self._of_names(where, columns), columns)

    def of_block(self, block: Block) -> RowFormat:
        if isinstance(block, RowBlock):
            return self.of_header(block.header)
        return self.of_columns(block.path, block.batch.schema.names)

    def _of_names(self, where: str, columns: Sequence[str], delimiter: str = ",") -> RowFormat:
        if not self.is_named:
            return self._with_places
        self._check_named(where, columns)
        return named_format(self.features, columns, delimiter, self._given)

    def _with_kept(self, where: str, found: RowFormat, columns: Sequence[str]) -> RowFormat:
        check_kept(where, [each.name for each in self.kept], columns)
        if not self.kept:
            return found
        kept = {each.name: Field((each.name,), text) for each in self.kept}
        return RowFormat(tuple(dict.fromkeys(columns)), found.delimiter, {**found.fields, **kept})

    def _check_named(self, where: str, columns: Sequence[str]) -> None:
        wanted = [name for each in self.features for name in self.columns_of(each, columns)]
        if missing := [name for name in wanted if name not in columns]:
            raise UserError(
                f"{where}: there is no column {listed(missing)} (there are "
                f"{listed(columns, 20)}). Features and labels are found in columns of their names: "
                "rename the columns or the features, or give the task rows()"
            )


def check_kept(where: str, keep: Sequence[str], columns: Sequence[str]) -> None:
    """Refuses columns to keep that are not there."""
    if missing := [column for column in keep if column not in columns]:
        raise UserError(
            f"{where}: there is no column {listed(missing)}, which --keep names; the columns "
            f"are {listed(columns, 20)}"
        )
