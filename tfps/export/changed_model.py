"""A loaded SavedModel whose variables deltas change in place."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.errors import UserError
from tfps.export.deltas import SliceDelta, Values
from tfps.export.exported_files import HINT
from tfps.export.keyed_slices import NOWHERE

_SPARE = 16  # a group of keys that is full grows by this part of it


class ChangedModel:
    """The variables of a model by the names that deltas have for them.

    Nobody may use the model while it is changed; see `apply`.
    """

    def __init__(self, loaded: Any, names: Mapping[str, int], where: str):
        """`names` are the places in the SavedModel's `model` of variables and whole tables."""
        self._loaded = loaded
        self._names = names
        self._where = where
        # Finding keys takes another index, which is made with the first delta.
        self._keys: dict[int, _KeyedRows] = {}

    def prepare(self, values: Values) -> None:
        """Checks that a delta fits, and makes what takes long; the model stays as it is.

        Raises:
            UserError: If it does not fit.
        """
        for path, value in values.variables.items():
            self._refuse_misfit(path, self._variable(path).shape == value.shape)
        for table, (ids, rows) in values.tables.items():
            self._refuse_misfit(table, _fits(self._variable(table), ids, [rows]))
        for number, group in values.slices.items():
            variables = self._slices(number)
            if group.hashes is None:
                fits = _fits(variables[0], group.rows, group.values)
                self._refuse_misfit(f"group {number}", fits)
                continue
            if number not in self._keys:
                self._keys[number] = _KeyedRows(variables)
            has_all = self._keys[number].has_all(group, group.hashes)
            self._refuse_misfit(f"group {number}", has_all)

    def apply(self, values: Values) -> None:
        """Changes all values; it takes no time but that."""
        for path, value in values.variables.items():
            self._variable(path).assign(value)
        for table, (ids, rows) in values.tables.items():
            _put(self._variable(table), ids, rows)
        for number, group in values.slices.items():
            if group.hashes is not None:
                self._keys[number].apply(group, group.hashes)
                self._find_keys(number)
                continue
            for variable, value in zip(self._slices(number), group.values, strict=True):
                _put(variable, group.rows, value)

    def _variable(self, name: str) -> Any:
        self._refuse_misfit(name, name in self._names)
        return self._loaded.model[self._names[name]]

    def _slices(self, number: int) -> list[Any]:
        self._refuse_misfit(f"group {number}", number < len(self._loaded.slices))
        return list(self._loaded.slices[number])

    def _refuse_misfit(self, name: str, fits: Any) -> None:
        if not fits:
            raise UserError(f"{self._where}: {name} is of another model than the delta; {HINT}")

    def _find_keys(self, number: int) -> None:
        """Has all functions of the model look up keys where they are found now."""
        keys = self._keys[number]
        if keys.is_used:
            return
        # A `StaticHashTable` takes no other keys: functions get another table in its place.
        keyed = [k for k, group in enumerate(self._loaded.slices) if _is_keyed(group)]
        table = self._loaded.resources[keyed.index(number)]
        for function in self._functions():
            captured = [
                keys.index.resource_handle if each is table.resource_handle else each
                for each in function.captured_inputs
            ]
            function.set_external_captures(captured)
        keys.is_used = True

    def _functions(self) -> Iterator[Any]:
        yield from self._loaded.signatures.values()
        of_tables = (each.concrete_functions for each in self._loaded.rows)
        yield from itertools.chain.from_iterable(of_tables)


class _KeyedRows:
    """Which row of the variables each key has."""

    def __init__(self, variables: list[Any]):
        hashes, *self._variables = variables
        self._hashes = hashes.numpy()[:-1]  # ascending; the last stands for no key
        self._places = np.arange(len(self._hashes))
        self.index = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, NOWHERE)
        self.index.insert(tf.constant(self._hashes), tf.constant(self._places))
        self.is_used = False  # by the model's functions

    def has_all(self, delta: SliceDelta, hashes: np.ndarray) -> bool:
        """Whether each key has a row here or in the delta."""
        new = np.setdiff1d(hashes, self._hashes, assume_unique=True)
        return bool(np.isin(new, delta.rows, assume_unique=True).all())

    def apply(self, delta: SliceDelta, hashes: np.ndarray) -> None:
        """Takes rows of keys that are gone for new ones, and those that changed."""
        before = np.searchsorted(self._hashes, hashes)
        is_known = before < len(self._hashes)
        is_known[is_known] = self._hashes[before[is_known]] == hashes[is_known]
        places = np.full(len(hashes), NOWHERE)
        places[is_known] = self._places[before[is_known]]
        places[~is_known] = self._free(places[is_known], int((~is_known).sum()))
        gone = np.setdiff1d(self._hashes, hashes, assume_unique=True)
        self.index.remove(tf.constant(gone))
        self.index.insert(tf.constant(hashes[~is_known]), tf.constant(places[~is_known]))
        self._hashes, self._places = hashes, places
        changed = places[np.searchsorted(hashes, delta.rows)]
        for variable, value in zip(self._variables, delta.values, strict=True):
            _put(variable, changed, value)

    def _free(self, taken: np.ndarray, count: int) -> np.ndarray:
        """Rows that no key has; there are more of them afterwards if they are too few."""
        held = _rows_of(self._variables[0])
        is_free = np.ones([held], np.bool_)
        is_free[taken] = False
        free = np.flatnonzero(is_free)
        if (missing := count - len(free)) > 0:
            more = max(missing, held // _SPARE)
            for variable in self._variables:
                empty = tf.zeros([more, *variable.shape[1:]], variable.dtype)
                variable.assign(tf.concat([variable, empty], 0))
            free = np.concatenate([free, np.arange(held, held + more)])
        return free[:count]


def _is_keyed(group: Any) -> bool:
    return bool(group[0].dtype == tf.int64)


def _fits(variable: Any, rows: np.ndarray, values: list[Any]) -> bool:
    inside = not len(rows) or (rows.min() >= 0 and rows.max() < _rows_of(variable))
    return bool(inside and values[0].shape[1:] == variable.shape[1:])


def _rows_of(variable: Any) -> int:
    return int(tf.raw_ops.VariableShape(input=variable.handle, out_type=tf.int64)[0])


def _put(variable: Any, rows: np.ndarray, values: Any) -> None:
    """Overwrites rows of a variable in place."""
    tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=tf.constant(rows, tf.int64), updates=values
    )
    # Or each later read of the variable would copy it.
    tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
