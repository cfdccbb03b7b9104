"""Gives layers of a new job's parameters the values of another job's checkpoint."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.keyed_rows import SavedKeyedGroup
from tfps.checkpoint.layer_selection import LayerSelection
from tfps.checkpoint.saved_values import SavedGroup, read_variables
from tfps.checkpoint.table_growth import grown_tables, log_new_rows
from tfps.errors import UserError
from tfps.optimizers.rules import rule_of
from tfps.optimizers.update_rule import UpdateRule
from tfps.store.keyed.hashing import keys_of_array
from tfps.store.last_updates import missed_since
from tfps.store.parameter_store import ParameterStore

_log = logging.getLogger(__name__)


def take_layers(checkpoint: Checkpoint, selection: LayerSelection, store: ParameterStore) -> None:
    """Gives layers of a store that was not trained yet the values of a checkpoint.

    Slots begin as they do in any new job, and so does the number of updates: an optimizer's moving
    averages and their bias correction belong together.
    """
    for table in store.layout.tables:
        if table.name in selection.tables and table.rows_from:
            raise UserError(
                f"--train.init_layers: table {table.name} begins with the rows of "
                f"{table.rows_from.path}; name other layers, or give it another initializer"
            )
    if selection.variables:
        values = read_variables(checkpoint)
        _write_variables(store, {path: values[path] for path in selection.variables})
    numbers = {table.name: number for number, table in enumerate(store.layout.tables)}
    for saved in SavedGroup.all_in(checkpoint):
        if wanted := [name for name in saved.tables if name in selection.tables]:
            rule = _rule(saved, wanted)
            for rows in saved.read(checkpoint, wanted):
                last = rows.last_updates
                values_now = _caught_up(rows.lines, last, saved, rule, checkpoint.steps)
                store.begin_rows(numbers[rows.table], rows.ids, values_now)
    for saved_keys in SavedKeyedGroup.all_in(checkpoint):
        if wanted := [name for name in saved_keys.tables if name in selection.tables]:
            _take_keys(checkpoint, saved_keys, {name: numbers[name] for name in wanted}, store)
    taken = [*selection.variables, *selection.tables]
    grown = grown_tables(checkpoint.signature, store.signature())
    log_new_rows({name: grown[name] for name in selection.tables if name in grown})
    _log.info("taken from %s, with new slots: %s", checkpoint.path, ", ".join(taken))
    _log.info("not taken of it: %s", ", ".join(selection.left) or "nothing")
    _log.info("new, with initial values: %s", ", ".join(selection.new) or "nothing")


def _take_keys(
    checkpoint: Checkpoint,
    saved: SavedKeyedGroup,
    numbers: Mapping[str, int],
    store: ParameterStore,
) -> None:
    """Gives keys the rows that they have in a checkpoint."""
    rule = _rule(saved, list(numbers))
    for run in saved.read(checkpoint):
        hashes, records = run.hashes.numpy(), run.records.numpy()
        lines = saved.row.decode_flat(run.lines).numpy()
        for member, table in enumerate(saved.tables):
            mine = np.flatnonzero(records[:, 0] == member)
            if table not in numbers or not len(mine):
                continue
            keys = keys_of_array(hashes[mine], saved.layout.salts[member])
            last = records[mine, 1]
            values = _caught_up(lines[mine], last, saved, rule, checkpoint.steps)
            store.begin_rows(numbers[table], keys, values)


def _write_variables(store: ParameterStore, values: Mapping[str, np.ndarray]) -> None:
    """Overwrites dense parameters and state, by path; the others stay what they are."""
    parts = {
        "dense": (store.layout.dense, store.read_dense),
        "state": (store.layout.state.whole, store.read_state),
    }
    slices = store.slices()
    for tensor, (layout, read) in parts.items():
        if values.keys().isdisjoint(layout.names):
            continue
        pairs = zip(layout.names, read(), strict=True)
        flat = np.concatenate([values.get(path, value).ravel() for path, value in pairs])
        for slice_ in slices:
            if slice_.name == tensor:
                with tf.device(slice_.device):
                    mine = flat[slice_.first : slice_.first + slice_.count]
                    slice_.variable.assign(tf.constant(mine), read_value=False)


def _rule(saved: SavedGroup | SavedKeyedGroup, tables: Sequence[str]) -> UpdateRule | None:
    """By which rows of a group make up for updates; None where they do not, or it is not known."""
    if not saved.catches_up:
        return None
    try:
        if saved.optimizer is None:
            raise UserError("the checkpoint does not say which optimizer it was")
        return rule_of(saved.optimizer)
    except UserError as error:
        _log.warning(
            "--train.init_layers: rows of %s are taken as their last updates left them, without "
            "what the other job's optimizer has moved them since: %s",
            ", ".join(tables),
            error,
        )
        return None


def _caught_up(
    lines: np.ndarray,
    last_updates: np.ndarray | None,
    saved: SavedGroup | SavedKeyedGroup,
    rule: UpdateRule | None,
    steps: int,
) -> np.ndarray:
    """Rows as they are after all updates of their checkpoint, `[n, dim]`."""
    if rule is None or saved.optimizer is None or last_updates is None:
        return lines[:, : saved.row.dim]
    missed = missed_since(tf.constant(last_updates), tf.constant(steps, tf.int64))
    values, *slots = saved.row.split(tf.constant(lines))
    caught_up, *_ = rule.catch_up(values, slots, missed, saved.optimizer["decays"])
    return np.asarray(caught_up)
