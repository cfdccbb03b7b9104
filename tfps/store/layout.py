"""Where everything that a model holds lies on the ps: pure data, before any ps is asked."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.experiment.experiment import EACH, KERAS, LAZY
from tfps.experiment.task import Table
from tfps.layers.key_options import KeyOptions
from tfps.model.lookup_tables import Numbering
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import Rules
from tfps.optimizers.update_rule import UpdateRule
from tfps.store.flat_layout import DenseLayout, StateLayout, lay_flat
from tfps.store.group_layout import GroupLayout
from tfps.store.keyed.layout import KeyedLayout
from tfps.store.row_gradients import RowGradients
from tfps.store.stored_row import StoredRow


@dataclasses.dataclass(frozen=True)
class Group:
    """Tables that share a pull and a push.

    All have the same constraint, or none.

    Attributes:
        is_lazy: Whether an update changes only the rows that a batch has touched.
        is_each: Whether occurrences of an id in a batch count by themselves.
    """

    layout: GroupLayout | KeyedLayout
    rule: UpdateRule
    decays: bool = False
    is_lazy: bool = False
    is_each: bool = False

    @property
    def catches_up(self) -> bool:
        """Whether rows make up for the updates that they were no part of."""
        return not self.is_lazy and self.rule.changes_untouched(self.decays)

    @functools.cached_property
    def row(self) -> StoredRow:
        """What each of the rows is on its ps."""
        return StoredRow.of(self.layout.dim, self.rule, self.layout.tables[0].row_dtype)

    @functools.cached_property
    def gradients(self) -> RowGradients:
        """What a push has of each row."""
        return RowGradients(self.layout.dim, self.rule, self.is_each)

    def signature(self) -> dict[str, Any]:
        """What must be equal for a checkpoint of the group to fit."""
        tables = [table.name for table in self.layout.tables]
        rows = {"row_updates": KERAS} if self.catches_up else {}
        return {"tables": tables, **self.rule.signature(), **self.row.signature(), **rows}

    def settings(self) -> dict[str, Any]:
        """What tells how rows make up for updates, as JSON-ready data."""
        return {**self.rule.settings, "decays": self.decays}

    @property
    def is_constrained(self) -> bool:
        """Whether rows are subjected to a constraint after every update."""
        return self.layout.tables[0].constraint is not None

    def caught_up(self, rule: UpdateRule, lines: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        """What missed updates make of rows with their slots.

        Args:
            lines: The rows as their last updates left them, `[u, size]` of `StoredRow`.

        Returns:
            The same rows now, `[u, size]`.
        """
        if not (self.catches_up or self.is_constrained):
            return lines
        values, *slots = self.row.split(lines)
        if self.catches_up:
            values, *slots = rule.catch_up(values, slots, missed, self.decays)
        return self.row.join([self.constrained_after(missed.next_step, values), *slots])

    def constrained(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` as their constraint leaves them after an update."""
        constraint = self.layout.tables[0].constraint
        return rows if constraint is None else constraint(rows)

    def constrained_after(self, updates: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` as their constraint leaves them after so many updates of any rows.

        After none they are as they were drawn.

        Args:
            updates: Scalar int64.
        """
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
        """The layout of a model's parameters."""
        groups, group_of = _groups(model.tables, rules, parts)
        dense = lay_flat(model.dense, parts)
        state = StateLayout(lay_flat(model.state, 1), model.state_changes)
        return cls(dense, rules.dense, state, groups, group_of, model.numberings)

    @property
    def parts(self) -> int:
        """Number of ps."""
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
        """Index of the ps that counts staleness."""
        return max(self.parts - 2, self.parts // 2)

    @property
    def loss_scale_part(self) -> int:
        """Index of the ps that has the loss scale: of four and more one that has nothing else."""
        return (self.parts - 1) // 2

    @property
    def tables(self) -> list[Table]:
        """The tables in the model's order."""
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
        """The settings of each group whose rows make up for updates, by its name."""
        catching_up = [group for group in self.groups if group.catches_up]
        return {group.layout.name: group.settings() for group in catching_up}

    def over(self, parts: int) -> "StoreLayout":
        """The same parameters over another number of ps."""
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
    """What is equal of constraints that do the same."""
    return f"{type(constraint).__name__} {constraint.get_config()}" if constraint else ""
