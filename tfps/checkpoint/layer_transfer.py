"""Gives layers of a new job's parameters the values of another job's checkpoint."""

import dataclasses
import fnmatch
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.keyed_rows import SavedKeyedGroup
from tfps.checkpoint.saved_values import SavedGroup, read_variables
from tfps.errors import UserError
from tfps.optimizers.rules import rule_of
from tfps.optimizers.update_rule import UpdateRule
from tfps.store.current_rows import missed_since
from tfps.store.keyed_layout import keys_of_array
from tfps.store.parameter_store import ParameterStore
from tfps.store.run_state import LearningRates, rules_by_part
from tfps.store.table_group import TableGroup

_log = logging.getLogger(__name__)
_NAMED_LAYERS = 10


def has_grown(there: tuple[int | None, ...], here: tuple[int | None, ...]) -> bool:
    """Whether a table only has more rows than before: ids keep their rows."""
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
    for name, (old, new) in grown.items():
        _log.info("table %s: %s rows taken, %s new ones drawn", name, f"{old:,}", f"{new - old:,}")


def read_grown(checkpoint: Checkpoint, store: ParameterStore, grown: Collection[str]) -> set[str]:
    """Reads rows and slots into all groups that have a grown table; the names of what was read.

    New rows stay as they were drawn. All go through this process, a chunk at a time: their places
    on the ps have changed.
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


class _Parameter(NamedTuple):
    """A variable or a table of a model; the first size of one without a vocabulary is None."""

    is_table: bool
    shape: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class LayerSelection:
    """What a run takes from a checkpoint of another model, by path."""

    variables: tuple[str, ...]
    tables: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]

    @classmethod
    def of(
        cls,
        patterns: Sequence[str],
        theirs: Mapping[str, Any],
        ours: Mapping[str, Any],
        checkpoint: str,
    ) -> "LayerSelection":
        """Selects layers that both models have, with everything within them.

        A pattern is a layer's name, its path, or a pattern of one of them, such as `block_*`.
        """
        there, here = _parameters(theirs), _parameters(ours)
        both = [path for path in here if path in there]
        taken = set()
        for pattern in patterns:
            matched = {path for path in both if _matches(path, pattern)}
            if not matched:
                raise UserError(
                    f"--train.init_layers={pattern} matches no layer that this model and "
                    f"{checkpoint} both have: {_common(both, here, there)}"
                )
            taken |= matched
        for path in sorted(taken):
            _refuse_other(path, there[path], here[path], checkpoint)
        return cls(
            tuple(path for path in both if path in taken and not here[path].is_table),
            tuple(path for path in both if path in taken and here[path].is_table),
            tuple(path for path in here if path not in taken),
            tuple(path for path in there if path not in taken),
        )


def _parameters(signature: Mapping[str, Any]) -> dict[str, _Parameter]:
    """Dense parameters, state and tables of a signature, by path."""
    return {
        path: _Parameter(part == "tables", tuple(shape))
        for part in ("dense", "state", "tables")
        for path, shape in signature[part].items()
    }


def _matches(path: str, pattern: str) -> bool:
    """Whether a pattern matches the name or path of a layer around a variable."""
    layers = _layers(path)
    paths = ["/".join(layers[: depth + 1]) for depth in range(len(layers))]
    return any(fnmatch.fnmatchcase(name, pattern) for name in (*layers, *paths))


def _layers(path: str) -> list[str]:
    """Names of the layers around a variable, the outermost first."""
    *layers, variable = path.split("/")
    return layers or [variable]


def _refuse_other(path: str, there: _Parameter, here: _Parameter, checkpoint: str) -> None:
    if there.is_table != here.is_table:
        kinds = {True: "a table", False: "a dense parameter"}
        raise UserError(
            f"--train.init_layers: {path} is {kinds[there.is_table]} in {checkpoint} and "
            f"{kinds[here.is_table]} here; give both jobs the same train.dense_table_bytes, or "
            "name other layers"
        )
    if here.is_table and (there.shape[0] is None) != (here.shape[0] is None):
        kinds = {True: "a table without a vocabulary", False: "a table with a row for each id"}
        raise UserError(
            f"--train.init_layers: {path} is {kinds[there.shape[0] is None]} in {checkpoint} and "
            f"{kinds[here.shape[0] is None]} here, so that its rows belong to other ids; name "
            "other layers, or give it another name"
        )
    if there.shape != here.shape and not (here.is_table and has_grown(there.shape, here.shape)):
        kind = "table" if here.is_table else "variable"
        theirs, ours = (_shape(each.shape) for each in (there, here))
        raise UserError(
            f"--train.init_layers: {kind} {path} is {theirs} in {checkpoint} and {ours} here; name "
            "only layers of equal shapes (a table may have more rows), or give it another name"
        )


def _shape(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _common(both: Iterable[str], here: Iterable[str], there: Iterable[str]) -> str:
    """What both models have, or else what each has, in words."""
    if shared := _named_layers(both):
        return f"they share {shared}"
    return f"this one has {_named_layers(here)}, that one {_named_layers(there)}"


def _named_layers(paths: Iterable[str]) -> str:
    layers = list(dict.fromkeys("/".join(_layers(path)) for path in paths))
    more = len(layers) - _NAMED_LAYERS
    return ", ".join(layers[:_NAMED_LAYERS]) + (f" and {more} more" if more > 0 else "")


def take_layers(checkpoint: Checkpoint, selection: LayerSelection, store: ParameterStore) -> None:
    """Gives layers of a new store the values of a checkpoint.

    Slots begin as in any new job, and so does the number of updates: an optimizer's moving averages
    and their bias correction belong together.
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
            rule = _rule(checkpoint, saved, wanted)
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
    rule = _rule(checkpoint, saved, list(numbers))
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
    """Overwrites dense parameters and state by path; the others stay."""
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


def _rule(
    checkpoint: Checkpoint, saved: SavedGroup | SavedKeyedGroup, tables: Sequence[str]
) -> UpdateRule | None:
    """The rule by which rows of a group catch up; None where they do not, or it is not known."""
    if saved.optimizer is None:
        return None
    try:
        rule = rule_of(saved.optimizer)
    except UserError as error:
        _log.warning(
            "--train.init_layers: rows of %s are taken as their last updates left them, without "
            "what the other job's optimizer has moved them since: %s",
            ", ".join(tables),
            error,
        )
        return None
    if not (checkpoint.learning_rates and saved.optimizer.get("is_dense")):
        return rule
    [rule] = rules_by_part(rule, LearningRates.of_checkpoint(checkpoint.learning_rates), 1)
    return rule


def _caught_up(
    lines: np.ndarray,
    last_updates: np.ndarray | None,
    saved: SavedGroup | SavedKeyedGroup,
    rule: UpdateRule | None,
    steps: int,
) -> np.ndarray:
    """Rows after all updates of their checkpoint, `[n, dim]`."""
    if rule is None or saved.optimizer is None or last_updates is None:
        return lines[:, : saved.row.dim]
    missed = missed_since(tf.constant(last_updates), tf.constant(steps, tf.int64))
    values, *slots = saved.row.split(tf.constant(lines))
    caught_up, *_ = rule.catch_up(values, slots, missed, saved.optimizer["decays"])
    return np.asarray(caught_up)
