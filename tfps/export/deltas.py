"""Deltas of an exported version: what has changed since, in numbered directories within it.

A delta is cumulative: a version and its newest delta are the model. It is there once it has its
`delta.json`, which is written last, and is deleted with its version.
"""

import dataclasses
import json
import posixpath
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import tensorflow as tf

from tfps.errors import RunError, UserError
from tfps.export import versions
from tfps.export.exported_files import HINT
from tfps.storage import files

DELTAS, DELTA_FILE = "deltas", "delta.json"
VALUES = "values"  # prefix of the files of values, in TensorFlow's format of checkpoints
# Parts of the values' names.
VARIABLE, TABLE, SLICES = "variables/", "tables/", "slices/"
IDS, ROWS, NUMBERS, HASHES, CHANGED = "/ids", "/rows", "/numbers", "/hashes", "/changed"


@dataclasses.dataclass(frozen=True)
class Delta:
    """The content of `delta.json`."""

    version: str  # name of the checkpoint that the version was exported of
    checkpoint: str  # name of the one with which the version and the delta agree
    rows: int
    bytes: int  # of the values
    metrics: dict[str, float]
    format: Literal[1] = 1


class SliceDelta(NamedTuple):
    """Rows of a group in slices."""

    # of what changed, `[n]` int64: numbers of rows, or hashes of keys in ascending order
    rows: np.ndarray
    values: list[tf.Tensor]  # as `RowEncoding.encode` gives them, `[n, width]`
    # of all keys, `[keys]` int64, ascending; None where rows have numbers
    hashes: np.ndarray | None


class Values(NamedTuple):
    """The values of a delta."""

    variables: dict[str, np.ndarray]  # dense parameters and state, by path
    tables: dict[str, tuple[np.ndarray, np.ndarray]]  # ids and rows, by table
    slices: dict[int, SliceDelta]  # by the group's number in the SavedModel


def numbers(version: str) -> list[int]:
    """Numbers of the whole deltas of a version, ascending."""
    return versions.whole_versions(directory_of(version), DELTA_FILE)


def directory_of(version: str) -> str:
    return posixpath.join(version, DELTAS)


def path_of(version: str, number: int) -> str:
    return versions.path_of(directory_of(version), number)


def describe(path: str) -> Delta:
    """What a delta says of itself.

    Raises:
        UserError: If its file is not one of this version of tfps.
    """
    where = posixpath.join(path, DELTA_FILE)
    try:
        return msgspec.convert(json.loads(files.read(where)), Delta)
    except (ValueError, msgspec.ValidationError) as error:
        raise UserError(f"{where}: {error}; {HINT}") from None


def read(path: str) -> Values:
    """The values of a delta.

    Raises:
        RunError: If they cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(posixpath.join(path, VALUES))
        found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise RunError(f"{path} cannot be read: {getattr(error, 'message', error)}") from None
    variables = {
        name.removeprefix(VARIABLE): value
        for name, value in found.items()
        if name.startswith(VARIABLE)
    }
    tables = {
        name[len(TABLE) : -len(IDS)]: (ids, found[name[: -len(IDS)] + ROWS])
        for name, ids in found.items()
        if name.startswith(TABLE) and name.endswith(IDS)
    }
    groups = {name.split("/")[1] for name in found if name.startswith(SLICES)}
    return Values(variables, tables, {int(each): _slice(found, each) for each in sorted(groups)})


def _slice(found: Mapping[str, np.ndarray], number: str) -> SliceDelta:
    base = f"{SLICES}{number}"
    hashes = found.get(base + HASHES)
    count = sum(name.startswith(f"{base}{ROWS}-") for name in found)
    values = [tf.constant(found[f"{base}{ROWS}-{k}"]) for k in range(count)]
    rows = found[base + (NUMBERS if hashes is None else CHANGED)]
    return SliceDelta(rows, values, hashes)
