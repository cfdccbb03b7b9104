"""Writes a delta of an exported version from a checkpoint."""

import dataclasses
import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.export import deltas, versions
from tfps.export.deltas import Delta
from tfps.export.parameters import CheckpointParameters, values_by_path
from tfps.export.saved_model import ExportForm
from tfps.export.sliced_variables import RowEncoding
from tfps.storage import failures, files
from tfps.store.group_layout import GroupLayout
from tfps.store.keyed_layout import KeyedLayout

_KEPT = 2  # a server may be reading the one before the newest


class Agreed(NamedTuple):
    """Names of the checkpoint that a version was exported of, and of the one of its delta."""

    version: str
    checkpoint: str


def write(
    version: str,
    agreed: Agreed,
    parameters: CheckpointParameters,
    form: ExportForm,
    metrics: Mapping[str, float],
) -> tuple[str, Delta]:
    """Writes what a checkpoint holds as the next delta of a version; its path and content.

    `form` is the version's.
    """
    path = versions.next_version(deltas.directory_of(version))
    tensors, rows = _tensors(parameters, form)
    try:
        files.make_directories(path)
        tf.raw_ops.SaveV2(
            prefix=posixpath.join(path, deltas.VALUES),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        files.sync_tree(path)
        size = sum(files.size(posixpath.join(path, name)) for name in files.names(path))
        delta = Delta(*agreed, rows, size, dict(metrics))
        content = json.dumps(dataclasses.asdict(delta), indent=1) + "\n"
        files.replace(posixpath.join(path, deltas.DELTA_FILE), content)
    except (OSError, tf.errors.OpError) as error:
        raise failures.explain(error, "written", path) from None
    versions.delete_old(deltas.directory_of(version), _KEPT, deltas.DELTA_FILE)
    return path, delta


def _tensors(
    parameters: CheckpointParameters, form: ExportForm
) -> tuple[dict[str, tf.Tensor], int]:
    """The values by name, and how many rows are among them."""
    model, layout = parameters.model, parameters.layout
    in_slices, encoding = form.in_slices(layout), form.encoding
    variables = values_by_path(model, parameters, [table.name for table in model.tables])
    tensors = {deltas.VARIABLE + path: value for path, value in variables.items()}
    count = 0
    for index, group in enumerate(layout.groups):
        base = f"{deltas.SLICES}{in_slices.index(index)}" if index in in_slices else ""
        if isinstance(group.layout, KeyedLayout):
            hashes, changed, rows = parameters.changed_keys(index)
            tensors |= {base + deltas.HASHES: hashes, base + deltas.CHANGED: changed}
            tensors |= _encoded(base, rows, encoding)
        else:
            numbers, rows = _changed(parameters, index, group.layout)
            if base:
                tensors |= {base + deltas.NUMBERS: numbers, **_encoded(base, rows, encoding)}
            else:
                tensors |= dict(_by_table(group.layout, numbers, rows))
        count += len(rows)
    return {name: tf.convert_to_tensor(value) for name, value in tensors.items()}, count


def _changed(
    parameters: CheckpointParameters, index: int, layout: GroupLayout
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers `[n]` and rows `[n, dim]` of what has changed in a group, padding left out."""
    numbers, rows = [np.zeros([0], np.int64)], [np.zeros([0, layout.dim], np.float32)]
    for some, values in parameters.changed_rows(index):
        mine = layout.ids_of(some)[0] < len(layout.tables)
        numbers.append(some[mine])
        rows.append(values[mine])
    return np.concatenate(numbers), np.concatenate(rows)


def _by_table(
    layout: GroupLayout, numbers: np.ndarray, rows: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    members, ids = layout.ids_of(numbers)
    for member, table in enumerate(layout.tables):
        mine = np.flatnonzero(members == member)
        yield f"{deltas.TABLE}{table.name}{deltas.IDS}", ids[mine]
        yield f"{deltas.TABLE}{table.name}{deltas.ROWS}", rows[mine]


def _encoded(base: str, rows: np.ndarray, encoding: RowEncoding) -> dict[str, tf.Tensor]:
    kept = encoding.encode(tf.constant(rows))
    return {f"{base}{deltas.ROWS}-{k}": value for k, value in enumerate(kept)}
