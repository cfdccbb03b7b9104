"""Tables that have more rows in a new job than in the checkpoint that it begins with."""

import logging
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.saved_values import SavedGroup
from tfps.store.parameter_store import ParameterStore
from tfps.store.table_group import TableGroup

_log = logging.getLogger(__name__)


def has_grown(there: tuple[int | None, ...], here: tuple[int | None, ...]) -> bool:
    """Whether a table only has more rows than before: the ids that there were keep theirs.

    Args:
        here: The same now; no number of a table without a vocabulary.
    """
    (old, *old_dim), (new, *new_dim) = there, here
    return old is not None and new is not None and old < new and old_dim == new_dim


def grown_tables(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The number of rows before and now of each table that has more of them."""
    there, here = theirs.get("tables", {}), ours.get("tables", {})
    return {
        name: (there[name][0], shape[0])
        for name, shape in here.items()
        if name in there and has_grown(there[name], shape)
    }


def log_new_rows(grown: Mapping[str, tuple[int, int]]) -> None:
    """Says how many rows of each table that has grown are taken, and how many are new."""
    for name, (old, new) in grown.items():
        _log.info("table %s: %s rows taken, %s new ones drawn", name, f"{old:,}", f"{new - old:,}")


def read_grown(checkpoint: Checkpoint, store: ParameterStore, grown: Collection[str]) -> set[str]:
    """Gives the rows of a checkpoint, with their slots, to all groups that have a grown table.

    New rows stay as they were drawn. They go through this process, a chunk at a time: where a row
    of such a group lies on the ps has changed.
    """
    read: set[str] = set()
    for saved in SavedGroup.all_in(checkpoint):
        if set(saved.tables).isdisjoint(grown):
            continue
        [group] = [each for each in store.groups if each.layout.name == saved.name]
        assert isinstance(group, TableGroup)
        group.set_last_updates(tf.constant(checkpoint.steps, tf.int64))
        for rows in saved.read(checkpoint, saved.tables):
            table = saved.tables.index(rows.table)
            group.set_rows(table, rows.ids, rows.lines, rows.last_updates)
        read |= {slice_.name for slice_ in group.slices()}
    return read
