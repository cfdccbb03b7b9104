"""Where everything that a model holds lies on the ps: pure data, no ps is asked."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.experiment.experiment import EACH, KERAS, LAZY
from tfps.experiment.task import Table
from tfps.layers.dynamic_embedding import KeyOptions
from tfps.model.lookup_tables import Numbering
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import Rules
from tfps.optimizers.update_rule import Tensors, UpdateRule
from tfps.store.group_layout import GroupLayout
from tfps.store.keyed_layout import KeyedLayout
from tfps.store.messages import RowGradients
from tfps.store.stored_row import StoredRow

WHOLE_BYTES = 256 << 20  # of all tables together that are held whole


@dataclasses.dataclass(frozen=True)
class DenseLayout:
    """Variables laid end to end in one flat float32 buffer, cut into equal parts at any value."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    parts: int

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    @property
    def total(self) -> int:
        return sum(self.sizes)

    def signature(self) -> dict[str, list[int]]:
        """The shape of each variable by its path, as JSON-ready data."""
        pairs = zip(self.names, self.shapes, strict=True)
        return {name: list(shape) for name, shape in pairs}

    def bounds(self, part: int) -> tuple[int, int]:
        return self.total * part // self.parts, self.total * (part + 1) // self.parts

    def sizes_in(self, part: int) -> list[int]:
        first, end = self.bounds(part)
        ends = list(itertools.accumulate(self.sizes))
        return [
            max(0, min(after, end) - max(after - size, first))
            for after, size in zip(ends, self.sizes, strict=True)
        ]

    def spread(self, part: int, values: Sequence[bool]) -> np.ndarray:
        """For every value of a part, the value of its variable, `[n]` bool."""
        return np.repeat(np.asarray(values, bool), self.sizes)[slice(*self.bounds(part))]

    def each(self, values: Sequence[float]) -> tf.Tensor:
        """For every value of the whole buffer, the value of its variable, or a scalar for all."""
        # A graph that uses it does not grow with the buffer.
        pairs = zip(values, self.sizes, strict=True)
        runs = [
            (value, sum(size for _, size in run))
            for value, run in itertools.groupby(pairs, lambda pair: pair[0])
        ]
        if len(runs) == 1:
            return tf.constant(runs[0][0])
        return tf.concat([tf.fill([count], value) for value, count in runs], 0)

    def cut(self, flat: tf.Tensor) -> list[tf.Tensor]:
        if self.parts == 1:
            return [flat]
        bounds = map(self.bounds, range(self.parts))
        # One operation for all parts: operations in every step for each ps make the graph large.
        return tf.split(flat, [end - first for first, end in bounds])

    def join(self, parts: Tensors) -> tf.Tensor:
        return parts[0] if self.parts == 1 else tf.concat(list(parts), 0)

    def unflatten(self, flat: tf.Tensor) -> list[tf.Tensor]:
        if not self.shapes:
            return []
        slices = tf.split(flat, self.sizes)
        return [
            tf.reshape(slice_, shape) for slice_, shape in zip(slices, self.shapes, strict=True)
        ]


class StateRun(NamedTuple):
    """Neighbouring state variables that are all changed by training, or all left as they are."""

    changes: bool
    first: int
    size: int


@dataclasses.dataclass(frozen=True)
class StateLayout:
    """A model's state: variables that training changes, and those that no step does."""

    whole: DenseLayout
    changes: tuple[bool, ...]

    @property
    def changing(self) -> DenseLayout:
        return self._only(True)

    @property
    def fixed(self) -> DenseLayout:
        """The variables that no step changes, such as those of a frozen backbone."""
        return self._only(False)

    @property
    def runs(self) -> list[StateRun]:
        found, first = [], 0
        pairs = zip(self.changes, self.whole.sizes, strict=True)
        for changes, run in itertools.groupby(pairs, lambda pair: pair[0]):
            found.append(StateRun(changes, first, sum(size for _, size in run)))
            first += found[-1].size
        return found

    def changing_of(self, values: Tensors) -> list[tf.Tensor]:
        return list(itertools.compress(values, self.changes))

    def merge(self, changing: Tensors, fixed: Tensors) -> list[tf.Tensor]:
        kinds = {True: iter(changing), False: iter(fixed)}
        return [next(kinds[changes]) for changes in self.changes]

    def add(self, values: Tensors, change: tf.Tensor) -> list[tf.Tensor]:
        differences = iter(self.changing.unflatten(change))
        return [
            value + next(differences) if changes else value
            for value, changes in zip(values, self.changes, strict=True)
        ]

    def _only(self, changes: bool) -> DenseLayout:
        which = [changes is each for each in self.changes]
        names = tuple(itertools.compress(self.whole.names, which))
        shapes = tuple(itertools.compress(self.whole.shapes, which))
        return DenseLayout(names, shapes, 1)


def lay_flat(variables: Sequence[Any], parts: int) -> DenseLayout:
    return DenseLayout(
        tuple(v.path for v in variables), tuple(tuple(v.shape) for v in variables), parts
    )


@dataclasses.dataclass(frozen=True)
class Group:
    """Tables that share a pull and a push, and have the same constraint or none."""

    layout: GroupLayout | KeyedLayout
    rule: UpdateRule
    decays: bool = False
    is_lazy: bool = False  # an update changes only the rows that a batch has touched
    is_each: bool = False  # occurrences of an id in a batch count by themselves

    @property
    def catches_up(self) -> bool:
        """Whether rows make the updates that they have missed."""
        return not self.is_lazy and self.rule.changes_untouched(self.decays)

    @functools.cached_property
    def row(self) -> StoredRow:
        return StoredRow.of(self.layout.dim, self.rule, self.layout.tables[0].row_dtype)

    @functools.cached_property
    def gradients(self) -> RowGradients:
        return RowGradients(self.layout.dim, self.rule, self.is_each)

    def signature(self) -> dict[str, Any]:
        """What must be equal for a checkpoint of the group to fit."""
        tables = [table.name for table in self.layout.tables]
        rows = {"row_updates": KERAS} if self.catches_up else {}
        return {"tables": tables, **self.rule.signature(), **self.row.signature(), **rows}

    def settings(self) -> dict[str, Any]:
        """How rows make missed updates, as JSON-ready data."""
        return {**self.rule.settings, "decays": self.decays}

    @property
    def is_constrained(self) -> bool:
        return self.layout.tables[0].constraint is not None

    def caught_up(self, rule: UpdateRule, lines: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        """Rows with their slots `[u, size]` of `StoredRow` after missed updates."""
        if not (self.catches_up or self.is_constrained):
            return lines
        values, *slots = self.row.split(lines)
        if self.catches_up:
            values, *slots = rule.catch_up(values, slots, missed, self.decays)
        return self.row.join([self.constrained_after(missed.next_step, values), *slots])

    def constrained(self, rows: tf.Tensor) -> tf.Tensor:
        constraint = self.layout.tables[0].constraint
        return rows if constraint is None else constraint(rows)

    def constrained_after(self, updates: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The same after a number of updates; after none rows are as they were drawn."""
        return tf.where(updates > 0, self.constrained(rows), rows) if self.is_constrained else rows


@dataclasses.dataclass(frozen=True)
class StoreLayout:
    """A model's parameters over a number of ps.

    What a step asks of one ps alone is spread: the first has the progress of leases, and a barrier
    with it, the last has the state, others the loss scale and the counts of staleness.
    """

    dense: DenseLayout
    dense_rule: UpdateRule
    state: StateLayout
    groups: tuple[Group, ...]
    group_of: tuple[tuple[int, int], ...]
    numberings: Mapping[str, Numbering] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, model: StatelessModel, rules: Rules, parts: int) -> "StoreLayout":
        groups, group_of = _groups(model.tables, rules, parts)
        dense = lay_flat(model.dense, parts)
        state = StateLayout(lay_flat(model.state, 1), model.state_changes)
        return cls(dense, rules.dense, state, groups, group_of, model.numberings)

    @property
    def parts(self) -> int:
        return self.dense.parts

    @property
    def ps_bytes(self) -> int:
        """Bytes of the parameters and slots of the ps that has most of them."""
        values = -(-self.dense.total // self.parts) * (1 + len(self.dense_rule.slots))
        of_dense = (values + self.state.whole.total) * tf.float32.size
        return of_dense + sum(
            -(-group.layout.total_rows // self.parts) * group.row.bytes for group in self.groups
        )

    @property
    def staleness_part(self) -> int:
        return max(self.parts - 2, self.parts // 2)

    @property
    def loss_scale_part(self) -> int:
        """Index of the ps with the loss scale: of four or more, one with nothing else."""
        return (self.parts - 1) // 2

    @property
    def tables(self) -> list[Table]:
        return [self.groups[group].layout.tables[index] for group, index in self.group_of]

    def signature(self, scales_loss: bool) -> dict[str, Any]:
        """What must be equal for a checkpoint to fit, on any number of ps, as JSON-ready data."""
        return {
            "dense": self.dense.signature(),
            "state": self.state.whole.signature(),
            "tables": {
                table.name: [None if table.keys else table.rows, table.dim] for table in self.tables
            },
            "dense_optimizer": self.dense_rule.signature(),
            **{group.layout.name: group.signature() for group in self.groups},
            "loss": {"scaled": scales_loss},
        }

    def optimizers(self) -> dict[str, Any]:
        """The settings of each group whose rows make missed updates, by its name.

        `is_dense` says whether a run's changes of the learning rate are the group's, too.
        """
        return {
            group.layout.name: {**group.settings(), "is_dense": group.rule == self.dense_rule}
            for group in self.groups
            if group.catches_up
        }

    def over(self, parts: int) -> "StoreLayout":
        groups = tuple(
            dataclasses.replace(group, layout=dataclasses.replace(group.layout, parts=parts))
            for group in self.groups
        )
        return dataclasses.replace(
            self, dense=dataclasses.replace(self.dense, parts=parts), groups=groups
        )


def _groups(
    tables: Sequence[Table], rules: Rules, parts: int
) -> tuple[tuple[Group, ...], tuple[tuple[int, int], ...]]:
    dims = [table.dim for table in tables]
    dtypes = [table.row_dtype for table in tables]
    constraints = [_identity(table.constraint) for table in tables]
    options = [table.keys and dataclasses.replace(table.keys, max_rows=1) for table in tables]
    kinds = zip(rules.tables, rules.tables_decay, dtypes, constraints, options, strict=True)
    keys = list(zip(dims, kinds, strict=True))
    members: dict[tuple[int, tuple[UpdateRule, bool, str, str, KeyOptions | None]], list[int]] = {}
    for index in sorted(range(len(tables)), key=dims.__getitem__):
        members.setdefault(keys[index], []).append(index)
    group_of: dict[int, tuple[int, int]] = {}
    groups: list[Group] = []
    for (dim, (rule, decays, _, _, has_keys)), indices in members.items():
        group_of |= {index: (len(groups), k) for k, index in enumerate(indices)}
        kind = KeyedLayout if has_keys else GroupLayout
        number = sum(type(g.layout) is kind and g.layout.dim == dim for g in groups)
        layout = kind(tuple(tables[k] for k in indices), parts, number)
        is_lazy, is_each = rules.row_updates == LAZY, rules.repeated_ids == EACH
        groups.append(Group(layout, rule, decays, is_lazy, is_each))
    return tuple(groups), tuple(group_of[index] for index in range(len(tables)))


def _identity(constraint: keras.constraints.Constraint | None) -> str:
    """Equal for constraints that do the same."""
    return f"{type(constraint).__name__} {constraint.get_config()}" if constraint else ""


def groups_in_slices(layout: StoreLayout, limit: int = WHOLE_BYTES) -> tuple[int, ...]:
    """Indices of the groups that no process may hold whole: large ones, and all with keys."""
    layouts = [group.layout for group in layout.groups]
    sizes = [each.total_rows * each.dim * tf.float32.size for each in layouts]
    has_keys = [index for index, each in enumerate(layouts) if isinstance(each, KeyedLayout)]
    held, sliced = 0, list(has_keys)
    for index in sorted(set(range(len(sizes))) - set(has_keys), key=sizes.__getitem__):
        held += sizes[index]
        if held > limit:
            sliced.append(index)
    return tuple(sorted(sliced))
