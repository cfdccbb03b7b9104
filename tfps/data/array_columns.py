"""What Keras's `fit` takes, as columns of records: arrays, data frames, and streams of batches."""

import collections
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.data.column import Column
from tfps.data.feature import Feature
from tfps.data.schema import Schema
from tfps.errors import UserError

Columns = tuple[dict[str, Column], dict[str, Column]]  # of features and of labels, by name


def batches_of(x: Any, y: Any, sample_weight: Any) -> tuple[bool, Iterator[tuple[Any, Any, Any]]]:
    """Whether batches come one by one, and their features, labels and weights."""
    # Arrays are a single batch.
    if callable(x) and not hasattr(x, "shape"):
        x = x()
    is_indexed = hasattr(x, "__getitem__") and hasattr(x, "num_batches")  # a `PyDataset`
    if not (isinstance(x, (tf.data.Dataset, Iterator)) or is_indexed):
        return False, iter([(x, y, sample_weight)])
    if y is not None or sample_weight is not None:
        raise UserError("write_dataset(): y= and sample_weight= go with arrays; batches bring both")
    is_endless = isinstance(x, tf.data.Dataset) and x.cardinality() == tf.data.INFINITE_CARDINALITY
    if is_endless or (is_indexed and x.num_batches is None):
        raise UserError(
            "write_dataset(): the batches never end; leave repeat() out, or take some with take(n)"
        )
    return True, _parts(x[k] for k in range(x.num_batches)) if is_indexed else _parts(x)


def _parts(batches: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Features, labels and weights of each batch, None for what it lacks."""
    for batch in batches:
        several = batch if isinstance(batch, tuple) else (batch,)
        if len(several) > 3:
            raise UserError(
                f"write_dataset(): a batch has {len(several)} parts; it may be x, (x, y) or (x, y, "
                "sample_weight)"
            )
        first, second, third = [*several, None, None][:3]
        yield first, second, third


def columns_of(
    batch: tuple[Any, Any, Any],
    features: Sequence[Feature] | None,
    label: Sequence[Feature] | None,
    before: int = 0,
) -> Columns:
    """The columns of features and of labels, by name."""
    x, y, weight = batch
    of_x = list(_named(x, features or (), "x"))
    of_y = list(_named(y, label or (), "label")) if y is not None else []
    of_weight = [("sample_weight", weight)] if weight is not None else []
    _check_names([name for name, _ in of_x], [name for name, _ in (*of_y, *of_weight)])
    found = tuple(
        {name: Column.of(values, name, before) for name, values in some}
        for some in (of_x, [*of_y, *of_weight])
    )
    lengths = {name: column.records for some in found for name, column in some.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise UserError(f"write_dataset(): columns differ in their number of records: {counted}")
    return found[0], found[1]


def _named(values: Any, known: Sequence[Feature], alone: str) -> Iterator[tuple[str, Any]]:
    """Columns with their names; a single array has the name of the only feature that is known."""
    if hasattr(values, "column_names"):  # as an Arrow table has
        yield from zip(values.column_names, values.columns, strict=True)
    elif isinstance(values, Mapping) or hasattr(values, "columns"):  # as a data frame has
        by_name = values if hasattr(values, "items") else _by_name(values)
        yield from ((_name(name), each) for name, each in by_name.items())
    elif isinstance(values, tuple) and any(getattr(each, "ndim", 0) for each in values):
        raise UserError(
            f"write_dataset(): a tuple of {len(values)} arrays has no names for them; give a dict "
            "of arrays by name"
        )
    else:
        yield (known[0].name if len(known) == 1 else alone), values


def _by_name(frame: Any) -> Mapping[str, Any]:
    """The columns of a frame of polars; Spark's and lazy ones hold none yet."""
    if hasattr(frame, "to_dict"):
        return dict(frame.to_dict())
    raise UserError(
        f"write_dataset(): the values of a {type(frame).__name__} are not in memory; give those of "
        "its toPandas() or collect(), some at a time by a generator"
    )


def _name(name: Any) -> str:
    """A column's name: text, or the number that a data frame gives to one without a name."""
    if isinstance(name, (str, int)) and name != "" and not isinstance(name, bool):
        return str(name)
    raise UserError(
        f"write_dataset(): a column has the name {name!r}, which is no text; rename it, the levels "
        'of a MultiIndex for example with frame.columns = ["_".join(each) for each in '
        "frame.columns]"
    )


def _check_names(features: Sequence[str], labels: Sequence[str]) -> None:
    """Refuses no column, and two of one name, of which a record would hold one."""
    if not features:
        raise UserError("write_dataset(): x holds no column")
    for name, count in collections.Counter([*features, *labels]).items():
        if count == 1:
            continue
        if name not in labels:
            text = f"x has two columns of the name {name!r}; rename one"
        elif name not in features:
            text = f"two labels, or a label and the weight, have the name {name!r}; rename one"
        else:
            text = (
                f"x has a column {name!r}, and the label or weight has that name too; rename the "
                "column, leave it out, or name a single label with label=tfps.Feature(...)"
            )
        raise UserError(f"write_dataset(): {text}: a record holds one value of a name")


def schema_of(
    columns: Columns, features: Sequence[Feature] | None, label: Sequence[Feature] | None
) -> Schema:
    """What a record holds: what is said of the columns, else what they show."""
    found = []
    for some, known in zip(columns, (features, label), strict=True):
        by_name = {feature.name: feature for feature in known or ()}
        if len(by_name) != len(known or ()):
            raise UserError("write_dataset(): features= or label= describes a column twice")
        if missing := by_name.keys() - some.keys():
            raise UserError(
                f"write_dataset(): there is no column {min(missing)!r}; the columns are "
                f"{', '.join(some)}"
            )
        found.append(tuple(by_name.get(n) or column.feature() for n, column in some.items()))
    return Schema(*found)


def split(columns: Columns, share: float) -> tuple[Columns, Columns | None]:
    """The first records, and the last share of them, as Keras's `fit` parts them."""
    if not share:
        return columns, None
    total = length(columns)
    kept = math.floor(total * (1 - share))
    if kept in (0, total):
        raise UserError(
            f"write_dataset(): validation_split={share} of {total} records leaves none for "
            f"{'training' if kept == 0 else 'evaluation'}"
        )
    return _part(columns, 0, kept), _part(columns, kept, total)


def _part(columns: Columns, first: int, end: int) -> Columns:
    features, labels = (
        {name: column.part(first, end) for name, column in each.items()} for each in columns
    )
    return features, labels


def length(columns: Columns) -> int:
    return next(iter(columns[0].values())).records
