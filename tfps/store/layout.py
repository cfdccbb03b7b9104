"""Where everything that a model holds lies on the ps: pure data, before any ps is asked."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.experiment.experiment import LAZY
from tfps.experiment.task import Table
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.optimizers.update_rule import UpdateRule
from tfps.store.group_layout import GroupLayout


@dataclasses.dataclass(frozen=True)
class DenseLayout:
    """Variables laid end to end in one flat float32 buffer, cut into equal parts.

    Cuts ignore the variables' own boundaries, so that every ps holds the same number of bytes.

    Attributes:
        names: Path of each variable, in order.
        shapes: Shape of each variable.
        parts: Number of parts, one per ps.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    parts: int

    @property
    def sizes(self) -> list[int]:
        """Number of values of each variable."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def total(self) -> int:
        """Number of values of the whole buffer."""
        return sum(self.sizes)

    def bounds(self, part: int) -> tuple[int, int]:
        """First value of a part and the one after its last."""
        return self.total * part // self.parts, self.total * (part + 1) // self.parts

    def spread(self, part: int, values: Sequence[bool]) -> np.ndarray:
        """For every value of a part, what holds for its variable, `[n]` bool.

        Args:
            part: Index of the part.
            values: One per variable.
        """
        return np.repeat(np.asarray(values, bool), self.sizes)[slice(*self.bounds(part))]

    def each(self, values: Sequence[float]) -> tf.Tensor:
        """For every value of the whole buffer, what holds for its variable.

        A graph that uses it does not grow with the buffer.

        Args:
            values: One per variable.

        Returns:
            `[total]`, or a scalar where all variables have the same.
        """
        pairs = zip(values, self.sizes, strict=True)
        runs = [
            (value, sum(size for _, size in run))
            for value, run in itertools.groupby(pairs, lambda pair: pair[0])
        ]
        if len(runs) == 1:
            return tf.constant(runs[0][0])
        return tf.concat([tf.fill([count], value) for value, count in runs], 0)

    def cut(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The parts of a whole buffer `[total]`."""
        if self.parts == 1:
            return [flat]
        bounds = map(self.bounds, range(self.parts))
        # One operation for all parts: what is in every step for each ps makes the graph large.
        return tf.split(flat, [end - first for first, end in bounds])

    def join(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The whole buffer `[total]` from its parts."""
        return parts[0] if self.parts == 1 else tf.concat(list(parts), 0)

    def unflatten(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """Every variable's value from the whole buffer `[total]`."""
        if not self.shapes:
            return []
        slices = tf.split(flat, self.sizes)
        return [
            tf.reshape(slice_, shape) for slice_, shape in zip(slices, self.shapes, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class Group:
    """Tables that share a pull and a push.

    Attributes:
        layout: Where their rows lie.
        rule: How they are updated.
        decays: Whether weight decay applies to them.
        is_lazy: Whether an update changes only the rows that a batch has touched.
    """

    layout: GroupLayout
    rule: UpdateRule
    decays: bool = False
    is_lazy: bool = False

    @property
    def catches_up(self) -> bool:
        """Whether rows make up for the updates that they were no part of."""
        return not self.is_lazy and self.rule.changes_untouched(self.decays)


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
        groups.append(Group(layout, rule, decays, rules.row_updates == LAZY))
    return tuple(groups), tuple(group_of[index] for index in range(len(tables)))
