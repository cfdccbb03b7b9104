"""All parameters of a model, on the ps."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.model.stateless_model import Lookup, StatelessModel
from tfps.optimizers.rules import Rules
from tfps.optimizers.update_rule import Tensors
from tfps.store.clipping import GradientClipping
from tfps.store.dense_parameters import DenseParameters
from tfps.store.exchange import Exchange, Push, RowFinder, rows_by_group, rows_by_lookup
from tfps.store.initializers import given_rows
from tfps.store.keyed.group import KeyedGroup
from tfps.store.keyed_layout import KeyedLayout
from tfps.store.layout import StoreLayout
from tfps.store.messages import (
    MOST_PS,
    Gradients,
    Note,
    Packing,
    Pulled,
    PulledRows,
    SentRows,
    Wire,
    Writes,
)
from tfps.store.model_state import ModelState
from tfps.store.partitioned_variable import TensorSlice
from tfps.store.run_state import LearningRates, LossScale, UpdateCounts
from tfps.store.table_group import TableGroup


class ParameterStore:
    """Dense parameters, tables and state."""

    def __init__(
        self,
        model: StatelessModel,
        rules: Rules,
        devices: Sequence[str],
        seed: int,
        wire_dtype: str = "float32",  # of parameters, rows and gradients; the state has its own
        staleness_power: float = 0.0,  # staleness s: learning rate times (1 + s)^-power
        may_change_rate: bool = False,  # but not that of a schedule
        packs: bool = True,  # if the ps are few; of no use where nothing travels
    ):
        self.devices = list(devices)
        self._staleness_power = staleness_power
        self.layout = layout = StoreLayout.of(model, rules, len(devices))
        self.wire = wire = Wire(wire_dtype)
        # Of dense parameters and tables with an equal optimizer; None if they never change.
        self.learning_rates = rates = None
        if may_change_rate and not rules.dense.has_schedule:
            first_rate = rules.dense.config["learning_rate"]
            self.learning_rates = rates = LearningRates(devices, first_rate)
        initial, decays = model.initial_dense, rules.dense_decays
        self.dense = DenseParameters(
            layout.dense, devices, rules.dense, initial, decays, wire, rates
        )
        self.state = ModelState(layout.state, model.state_kept, model.initial_state, devices[-1])
        # Values of the model's dense and of its state variables, on the chief.
        self.read_dense, self.read_state = self.dense.read, self.state.read
        versioned = self._versioned_parts()
        self.update_counts = UpdateCounts(
            devices, layout.staleness_part, versioned, staleness_power
        )
        self.staleness = self.update_counts.staleness
        self.groups: list[TableGroup | KeyedGroup] = []
        for group in layout.groups:
            kind = KeyedGroup if isinstance(group.layout, KeyedLayout) else TableGroup
            own = rates if group.rule == rules.dense else None
            self.groups.append(kind(group, devices, seed, self.update_counts.read, wire, own))
        for number, table in enumerate(layout.tables):
            if table.rows_from:
                for ids, rows in given_rows(table):
                    self.begin_rows(number, ids, rows)
        self.finder = RowFinder(layout, self.groups)
        self.packing = Packing(packs and len(devices) <= MOST_PS)
        self.exchange = Exchange(self.dense, self.groups, devices, wire, self.packing)
        self.clipping = GradientClipping(rules.dense, self.groups)
        scaling = model.loss_scaling
        self.loss_scale = LossScale(scaling, devices[layout.loss_scale_part]) if scaling else None

    def _versioned_parts(self) -> Sequence[int]:
        """Indices of the ps whose updates report how stale they are."""
        if self._staleness_power:
            return range(len(self.devices))
        of_state = [] if self.state.is_recurrent else [len(self.devices) - 1]
        return sorted({self.layout.staleness_part, *of_state})

    @property
    def keyed_groups(self) -> list[KeyedGroup]:
        return [group for group in self.groups if isinstance(group, KeyedGroup)]

    def in_closure(self) -> contextlib.AbstractContextManager[None]:
        """While a closure is traced: each worker pulls once what no step changes."""
        return self.state.kept_by_worker()

    def pull(
        self,
        lookups: list[Lookup],
        after: Tensors = (),
        found: Sequence[PulledRows] | None = None,
        is_training: bool = True,
    ) -> Pulled:
        """Fetches the dense parameters, the state and the rows that the lookups ask for."""
        found = self.finder.find(lookups) if found is None else found
        dense, pulled = self.exchange.pull(found, after, is_training)
        state = self.state.pull(after)
        versions = self.update_counts.pull(after)
        scale = self.loss_scale.pull(after) if self.loss_scale else None
        return Pulled(dense, state, pulled, lookups, versions, scale)

    def pull_with_slots(self) -> tuple[list[tf.Tensor], list[tf.Tensor], dict[int, tf.Tensor]]:
        """Dense parameters and slots, `[total]`; the state; the version that staleness needs."""
        part = self.staleness.part
        version = {part: self.update_counts.read(part)}
        dense = self.dense.pull_with_slots() if self.layout.dense.total else []
        return dense, self.state.pull(), version

    def rows_by_lookup(self, pulled: Pulled) -> list[tf.Tensor]:
        """One row per id asked for, by lookup, as `exchange.rows_by_lookup` gives them."""
        return rows_by_lookup(self.layout, pulled)

    def gradients(self, pulled: Pulled, dense: Tensors, rows: Tensors, state: Tensors) -> Gradients:
        """What a batch gave, from one gradient per id asked for, by lookup."""
        by_group = rows_by_group(self.layout, pulled, rows)
        of_groups = [
            group.gradients.of_occurrences(gradient)
            for group, gradient in zip(self.groups, by_group, strict=True)
        ]
        return Gradients(pulled, dense, of_groups, state)

    def sum_by_row(self, pulled: Sequence[PulledRows], gradients: Tensors) -> list[tf.Tensor]:
        """By group, the gradient of each distinct row, `[u, width]`, from `Gradients.rows`."""
        return [
            group.sum_by_row(rows, gradient)
            for group, rows, gradient in zip(self.groups, pulled, gradients, strict=True)
        ]

    def push(
        self,
        pulled: Pulled,
        dense: Tensors,
        rows: Tensors,
        state: Tensors,
        note: Note | None = None,
    ) -> Writes:
        """Applies one batch's gradients, and makes its step of the state."""
        # Where the loss is scaled, gradients that are not all finite are left out. The note is
        # delivered once all that the push brings there is applied or left out.
        applied: Writes = []
        if self.state.changes:
            increment = self.state.increment(pulled.state, state)
            applied.append(self.state.push(increment, share=self.share_of_state(pulled)))
        if self.loss_scale and pulled.loss_scale is not None:
            finite = self.loss_scale.all_finite([*dense, *rows])

            def apply() -> tf.Tensor:
                writes = self._apply(pulled, dense, rows, note)
                with tf.control_dependencies(writes):
                    return tf.constant(True)

            def leave_out() -> tf.Tensor:
                if note:
                    with tf.device(self.devices[0]):
                        note.deliver(tf.identity(note.numbers))
                return tf.constant(False)

            applied.append(tf.cond(finite, apply, leave_out))
            self.loss_scale.update(pulled.loss_scale, finite)
        else:
            applied += self._apply(pulled, dense, rows, note)
        return applied

    def apply(
        self,
        part: int,
        dense: Tensors,
        groups: Sequence[SentRows],
        step: tf.Tensor,
        scale: tf.Tensor | None = None,
    ) -> Writes:
        """Applies what one ps was sent of a batch; under its device."""
        writes = [w for gradient in dense for w in self.dense.apply(part, gradient, step, scale)]
        for group, sent in zip(self.groups, groups, strict=True):
            if not group.rule.changes_nothing:
                writes += group.apply(part, sent, step, scale)
        return writes

    def change_of_state(self, before: Tensors, after: Tensors) -> tf.Tensor | None:
        """What has changed of the state that training changes, `[n]`; None for none."""
        if not self.state.changes:
            return None
        both = zip(*map(self.layout.state.changing_of, (after, before)), strict=True)
        return tf.concat([tf.reshape(new - old, [-1]) for new, old in both], 0)

    def steps(self) -> int:
        return self.update_counts.steps()

    def set_steps(self, steps: int) -> None:
        """Sets the number of updates on every ps, after a restore."""
        self.update_counts.set_steps(steps)

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds, without lease progress."""
        slices = self.dense.slices()
        for group in self.groups:
            slices += group.slices()
        slices += self.state.slices()
        if self.loss_scale:
            slices.append(self.loss_scale.slice_())
        return slices

    def signature(self) -> dict[str, Any]:
        return self.layout.signature(bool(self.loss_scale))

    def begin_rows(self, table: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """Gives rows `[n, dim]` of a table initial values, by their ids `[n]`; slots too."""
        group, member = self.layout.group_of[table]
        self.groups[group].begin_rows(member, ids, rows)

    def read_tables(self, tables: Sequence[int]) -> dict[int, np.ndarray]:
        return {table: self.read_table(table) for table in tables}

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]`, on the chief."""
        index, member = self.layout.group_of[table]
        group = self.groups[index]
        assert isinstance(group, TableGroup), f"table {self.layout.tables[table].name} has keys"
        return group.read_table(member)

    def read_rows(self, table: int, ids: np.ndarray) -> np.ndarray:
        """Some rows of a table by their ids `[n]`, `[n, dim]`, on the chief."""
        group, index = self.layout.group_of[table]
        return self.groups[group].read_rows(index, ids)

    def sample_rows(self, table: int, most: int) -> np.ndarray:
        """At most `most` rows of a table, evenly spread over its ids or hashes; on the chief."""
        index, member = self.layout.group_of[table]
        return self.groups[index].sample_rows(member, most)

    def share_of_state(self, pulled: Pulled) -> float | tf.Tensor:
        """The part of a worker's state in a mean with that of others: 1 / (1 + staleness)."""
        if self.state.is_recurrent:
            return 1.0
        with tf.device(self.devices[-1]):
            # Read before the update of this very batch, in program order.
            staleness = self.update_counts.since(len(self.devices) - 1, pulled.versions)
            return 1.0 / (1.0 + tf.cast(staleness, tf.float32))

    def _apply(self, pulled: Pulled, dense: Tensors, rows: Tensors, note: Note | None) -> Writes:
        summed = self.sum_by_row(pulled.groups, rows)
        dense, summed = self.clipping.clip(dense, summed, pulled.groups)

        def apply(part: int, push: Push) -> Writes:
            # An update counts once its gradients are there.
            step = self.update_counts.add(part, push.arrived, pulled.versions)
            scale = self.update_counts.rate_scale(part, step, pulled.versions)
            return self.apply(part, push.dense, push.rows, step, scale)

        return self.exchange.push(pulled.groups, summed, dense, note, apply)
