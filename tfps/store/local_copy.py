"""A worker's copy of what a few batches need, which is trained in its own memory."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.model import Lookup
from tfps.store.gradients import Gradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.pulled import Pulled
from tfps.store.row_sums import sum_rows
from tfps.store.row_tensors import PulledRows
from tfps.store.update_rule import UpdateRule


class _Values(NamedTuple):
    """Parameters and slots.

    Attributes:
        dense: The dense parameters and each of their slots, `[total]`.
        rows: By group, distinct rows with their slots, `[u, 1 + slots, dim]`.
        state: The state variables.
    """

    dense: list[tf.Tensor]
    rows: list[tf.Tensor]
    state: list[tf.Tensor]


class LocalCopy:
    """Parameters and slots on a worker, from one pull, through several steps, to one push.

    What is pushed is the difference that the steps made, and the ps add it to what others have made
    of the parameters meanwhile. Differences of parameters, and of slots that are sums over all
    gradients, add up. A slot that is a moving average has moved by as much for every worker: of
    its difference each worker adds its share, so that the average stays one.
    """

    def __init__(self, store: ParameterStore, workers: int, batches: Sequence[list[Lookup]]):
        """Pulls.

        Args:
            store: Where the parameters are.
            workers: How many do the same.
            batches: The lookups of each batch.
        """
        self._store = store
        self._workers = workers
        self._batches = batches
        dense, state, self._version = store.pull_with_slots()
        self._groups: list[PulledRows] = []
        self._inverse: list[list[tf.Tensor]] = []
        for index, group in enumerate(store.groups):
            ids = [store.ids(index, lookups) for lookups in batches]
            pulled = group.pull(tf.concat(ids, 0), with_slots=True)
            sizes = tf.stack([tf.size(some) for some in ids])
            self._groups.append(pulled)
            self._inverse.append(tf.split(pulled.inverse, sizes, num=len(ids)))
        self._begun = _Values(dense, [pulled.rows for pulled in self._groups], state)
        self._now = self._begun

    def pulled(self, batch: int) -> Pulled:
        """What a batch needs, as the steps so far have left it."""
        now, layout = self._now, self._store.layout
        dense = layout.dense.unflatten(now.dense[0]) if now.dense else []
        groups = [
            pulled._replace(rows=rows[:, 0], inverse=inverse[batch])
            for pulled, rows, inverse in zip(self._groups, now.rows, self._inverse, strict=True)
        ]
        return Pulled(dense, now.state, groups, self._batches[batch], [self._version], None)

    def update(self, batch: int, gradients: Gradients) -> None:
        """Makes a step with a batch's gradients."""
        store, now = self._store, self._now
        step = tf.cast(self._version, tf.int64) + batch
        touched, summed, parts = [], [], []
        for index, pulled in enumerate(gradients.pulled.groups):
            rows, inverse = tf.unique(pulled.inverse)
            touched.append(rows)
            summed.append(sum_rows(gradients.rows[index], inverse, tf.size(rows)))
            parts.append(pulled._replace(ids=tf.gather(pulled.ids, rows)))
        dense, summed = store.clipping.clip(gradients.dense, summed, parts)
        values = store.dense.stepped(now.dense, dense, step) if dense else []
        rows = [
            tf.tensor_scatter_nd_update(
                lines,
                where[:, tf.newaxis],
                group.stepped(tf.gather(lines, where), gradient, step),
            )
            for group, lines, where, gradient in zip(
                store.groups, now.rows, touched, summed, strict=True
            )
        ]
        self._now = _Values(values, rows, list(gradients.state))

    def push(self) -> list[tf.Operation]:
        """Adds what the steps have changed to the parameters; returns the operations that write."""
        store, steps = self._store, len(self._batches)
        share = [1.0, *self._shares(store.dense.rule)]
        pairs = zip(self._now.dense, self._begun.dense, share, strict=bool(self._now.dense))
        dense = store.dense.send_all([(new - old) * part for new, old, part in pairs])
        groups = []
        for group, pulled, new, old in zip(
            store.groups, self._groups, self._now.rows, self._begun.rows, strict=True
        ):
            shares = tf.constant([1.0, *self._shares(group.rule)])
            groups.append(group.send(pulled, (new - old) * shares[:, tf.newaxis]))
        writes: list[tf.Operation] = []
        for part, device in enumerate(store.devices):
            with tf.device(device):
                sent = dense[part] if dense else [], [rows[part] for rows in groups]
                values, rows_of = tf.nest.map_structure(tf.identity, sent)
                count = store.count_update(part, tf.nest.flatten((values, rows_of)), steps)
                if part == store.staleness.part:
                    store.staleness.count(self._version, count)
                if values:
                    writes += store.dense.add(part, values)
                for group, rows in zip(store.groups, rows_of, strict=True):
                    writes += group.add(part, rows)
        change = store.change_of_state(self._begun.state, self._now.state)
        return [*writes, *([] if change is None else [store.add_to_state(change)])]

    def _shares(self, rule: UpdateRule) -> list[float]:
        """What of a slot's difference a worker adds, for each slot."""
        return [1.0 if rule.slots_add_up else 1.0 / self._workers] * len(rule.slots)
