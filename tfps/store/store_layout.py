"""Where everything that a model holds lies on the ps: pure data, before any ps is asked."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tfps.experiment.task import Table
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.optimizers.update_rule import UpdateRule
from tfps.store.dense_layout import DenseLayout
from tfps.store.layout import GroupLayout


@dataclasses.dataclass(frozen=True)
class Group:
    """Tables that share a pull and a push.

    Attributes:
        layout: Where their rows lie.
        rule: How they are updated.
        decays: Whether weight decay applies to them.
    """

    layout: GroupLayout
    rule: UpdateRule
    decays: bool


@dataclasses.dataclass(frozen=True)
class StoreLayout:
    """A model's parameters over a number of ps.

    What a step asks of one ps alone is spread: the first has the progress of leases, and a barrier
    with it, the last has the state, others the loss scale and the counts of staleness.

    Attributes:
        dense: The dense parameters, in equal parts.
        dense_rule: How they are updated.
        state: The state, whole, on the last ps.
        groups: The tables by dimension and optimizer.
        group_of: For every table, the index of its group and its index in the group.
    """

    dense: DenseLayout
    dense_rule: UpdateRule
    state: DenseLayout
    groups: tuple[Group, ...]
    group_of: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, model: StatelessModel, rules: Rules, parts: int) -> "StoreLayout":
        """The layout of a model's parameters.

        Args:
            model: The model.
            rules: How its parameters are updated.
            parts: Number of ps.
        """
        groups, group_of = _groups(model.tables, rules, parts)
        dense, state = _flat(model.dense, parts), _flat(model.state, 1)
        return cls(dense, rules.dense, state, groups, group_of)

    @property
    def parts(self) -> int:
        """Number of ps."""
        return self.dense.parts

    @property
    def staleness_part(self) -> int:
        """Index of the ps that counts staleness."""
        return max(self.parts - 2, self.parts // 2)

    @property
    def loss_scale_part(self) -> int:
        """Index of the ps that has the loss scale: of four and more one that has nothing else."""
        return (self.parts - 1) // 2

    def over(self, parts: int) -> "StoreLayout":
        """The same parameters over another number of ps."""
        groups = tuple(
            dataclasses.replace(group, layout=dataclasses.replace(group.layout, parts=parts))
            for group in self.groups
        )
        return dataclasses.replace(
            self, dense=dataclasses.replace(self.dense, parts=parts), groups=groups
        )


def _flat(variables: Sequence[Any], parts: int) -> DenseLayout:
    return DenseLayout(
        tuple(v.path for v in variables), tuple(tuple(v.shape) for v in variables), parts
    )


def _groups(
    tables: Sequence[Table], rules: Rules, parts: int
) -> tuple[tuple[Group, ...], tuple[tuple[int, int], ...]]:
    dims = [table.dim for table in tables]
    keys = list(zip(dims, rules.tables, rules.tables_decay, strict=True))
    members: dict[tuple[int, UpdateRule, bool], list[int]] = {}
    for index in sorted(range(len(tables)), key=dims.__getitem__):
        members.setdefault(keys[index], []).append(index)
    group_of: dict[int, tuple[int, int]] = {}
    groups: list[Group] = []
    for (dim, rule, decays), indices in members.items():
        group_of |= {index: (len(groups), k) for k, index in enumerate(indices)}
        number = sum(group.layout.dim == dim for group in groups)
        layout = GroupLayout(tuple(tables[k] for k in indices), parts, number)
        groups.append(Group(layout, rule, decays))
    return tuple(groups), tuple(group_of[index] for index in range(len(tables)))
