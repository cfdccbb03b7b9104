"""Writes a config that learns a table's label from its other columns."""

import dataclasses
import itertools
import json
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence

import jinja2

from tfps.errors import UserError, listed
from tfps.layers.date_parts import days_since_1970
from tfps.storage import files
from trainer.table.column_kind import (
    LEFT_OUT,
    Kind,
    is_integer,
    is_number,
    kind_of,
    missing_number,
    takes_logarithm,
)
from trainer.table.column_summary import ColumnSummary, Frequencies
from trainer.table.table_scan import Table

_MOST_CLASSES = 100
_MOST_NUMBERED_CLASSES = 20  # of an integer label, more of which are numbers
_MOST_WORDS = 5000
_SPARE_ROWS = 1.2  # for ids that are yet to come


@dataclasses.dataclass(frozen=True)
class Label:
    """What the model learns."""

    name: str
    classes: Sequence[str] = ()  # none of a number
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, column: ColumnSummary) -> "Label":
        exact = column.frequencies.exact
        most = _MOST_NUMBERED_CLASSES if is_number(column) else _MOST_CLASSES
        is_classes = exact is not None and 2 <= len(exact) <= most
        if is_classes and (not is_number(column) or is_integer(column)):
            return cls(column.name, sorted(exact or (), key=_in_order))
        if not is_number(column):
            raise UserError(
                f"--label={column.name} holds {column.distinct:,} different texts; a "
                f"label is a number or one of at most {_MOST_CLASSES} classes"
            )
        moments = column.numbers.moments
        return cls(column.name, (), moments.mean, moments.variance**0.5 or 1.0)

    @property
    def feature(self) -> str:
        if not self.classes:
            return f'tfps.Feature({_literal(self.name)}, "float32")'
        return f'tfps.Feature({_literal(self.name)}, "int64", vocabulary={len(self.classes)})'

    @property
    def are_numbered(self) -> bool:
        """Whether the cells are the classes' numbers already."""
        return list(self.classes) == list(map(str, range(len(self.classes))))

    @property
    def head(self) -> str:
        """The last layers."""
        if not self.classes:
            last = "keras.layers.Dense(1)(hidden)"
            return f"keras.layers.Rescaling({self.deviation:.6g}, {self.mean:.6g})({last})"
        if len(self.classes) == 2:
            return 'keras.layers.Dense(1, activation="sigmoid")(hidden)'
        return f'keras.layers.Dense({len(self.classes)}, activation="softmax")(hidden)'

    @property
    def loss(self) -> str:
        if not self.classes:
            return "mse"
        is_yes_or_no = len(self.classes) == 2
        return "binary_crossentropy" if is_yes_or_no else "sparse_categorical_crossentropy"


@dataclasses.dataclass(frozen=True)
class ConfigFiles:
    """A config and its vocabularies, by their paths."""

    path: str
    texts: Mapping[str, str]

    def write(self, overwrite: bool) -> None:
        for path in self.texts:
            if not overwrite and files.exists(path):
                raise UserError(f"--output: {path} is there already; replace it with --overwrite")
        for path, text in self.texts.items():
            files.make_directories(posixpath.dirname(path) or ".")
            files.replace(path, text, "partial")


def _file_of(column: str, taken: Collection[str]) -> str:
    """The name of a column's file, which no other column has."""
    stem = re.sub(r"[^\w.-]", "_", column)
    names = (f"{stem}{f'_{number}' if number else ''}.txt" for number in itertools.count())
    return next(name for name in names if name not in taken)


def config_files(table: Table, label_name: str, path: str) -> ConfigFiles:
    """The config of a table at a path."""
    if label_name not in table.columns:
        raise UserError(
            f"--label={label_name}: there is no such column (there are "
            f"{listed(list(table.columns))})"
        )
    label = Label.of(table.columns[label_name])
    stem = posixpath.basename(path).removesuffix(".py")
    directory = f"{stem}_files"
    lines, texts, left_out, files_of = [], {}, [], set[str]()
    for name, column in table.columns.items():
        if name == label_name:
            continue
        kind = kind_of(column)
        if kind in LEFT_OUT:
            left_out.append(f"{name}: {kind}")
            continue
        file = _file_of(name, files_of)
        files_of.add(file)
        line, words = _column(column, kind, f"FILES / {_literal(file)}")
        lines.append(line)
        if words is not None:
            text = "".join(f"{word}\n" for word in words)
            texts[posixpath.join(posixpath.dirname(path), directory, file)] = text
    if not lines:
        raise UserError(f"--input={table.data}: there is no column to learn {label_name!r} from")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainer.table", ""),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 (it writes Python; what is not a literal is a name of ours)
    )
    environment.filters["literal"] = _literal
    text = environment.get_template("config.py.j2").render(
        label=label,
        learnt=_comment(label.name),
        source=_comment(posixpath.basename(table.data.rstrip("/"))),
        rows=f"{table.rows:,}",
        has_files=bool(texts),
        converts=bool(label.classes) and not label.are_numbered,
        directory=directory,
        left_out=[_comment(each) for each in left_out],
        columns=lines,
        stem=stem,
    )
    return ConfigFiles(path, {path: text, **texts})


def _column(column: ColumnSummary, kind: Kind, file: str) -> tuple[str, list[str] | None]:
    """The column of a config, and its vocabulary if it has one."""
    name = _literal(column.name)
    if kind == Kind.NUMBER:
        log = takes_logarithm(column)
        moments = column.numbers.log_moments if log else column.numbers.moments
        default = missing_number(column)
        options = (", log=True" if log else "") + (f", default={default}" if default else "")
        return f"Number({name}, {moments.mean:.6g}, {moments.variance or 1.0:.6g}{options})", None
    dtype = ', dtype="int64"' if is_integer(column) else ""
    if kind == Kind.DATE:
        first, last = (_day(text) for text in (column.first_date, column.last_date))
        return f"Date({name}, {first}, {last})", None
    if kind == Kind.IDS:
        rows = int(column.distinct * _SPARE_ROWS // 100 + 1) * 100
        return f"Ids({name}, max_rows={rows:_}{dtype})", None
    if kind == Kind.TEXT:
        return f"Text({name}, {file})", _words(column.vocabulary, _MOST_WORDS)
    if kind == Kind.LIST:
        return f"Category({name}, {file}, is_list=True)", _words(column.parts)
    return f"Category({name}, {file}{dtype})", _words(column.frequencies)


def _words(frequencies: Frequencies, most: int = 1 << 30) -> list[str]:
    """The values of a vocabulary; those that no line holds are left to the row of others."""
    found = (word for word, _ in frequencies.most(most))
    return [word for word in found if word.strip() and word.splitlines() == [word]]


def _in_order(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return 0.0, text


def _day(text: str) -> int:
    year, month, day = (int(text[a:b]) for a, b in ((0, 4), (5, 7), (8, 10)))
    return int(days_since_1970(year, month, day))


def _literal(text: str) -> str:
    """A text as Python has it."""
    return json.dumps(text, ensure_ascii=False)


def _comment(text: str) -> str:
    """A name of a user's as a comment, or a docstring, can hold it."""
    return text.encode("unicode_escape").decode().replace('"', "'")
