"""A group of tables without vocabularies as tests make it, without a store around it."""

import functools
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.layers.dynamic_embedding import KeyOptions
from tfps.optimizers.rules import rule_for
from tfps.store.keyed.group import KeyedGroup
from tfps.store.keyed.part import SavedKeys
from tfps.store.keyed_layout import KeyedLayout, keys_of_array
from tfps.store.layout import Group
from tfps.store.messages import PulledRows

DEVICE = "/device:CPU:0"


class Pull(NamedTuple):
    """What one pull gave.

    Attributes:
        rows: For each table its rows, `[tables, n, dim]`, if all are asked for as many keys.
        pulled: What the group gave.
    """

    rows: np.ndarray
    pulled: PulledRows


class Keyed:
    """A group on parts of this process; its updates are counted in one number."""

    def __init__(
        self,
        parts=1,
        tables=("a",),
        dim=2,
        seed=7,
        initializer=None,
        optimizer=None,
        row_dtype="float32",
        rows=(),
        **options,
    ):
        self.dim, self.tables = dim, tables
        initializer = initializer or keras.initializers.RandomUniform(-0.05, 0.05)
        self.options = KeyOptions(**{"max_rows": 100, **options})
        members = tuple(
            Table(
                name,
                most,
                dim,
                initializer,
                keys=self.options,
                row_dtype=row_dtype,
            )
            for name, most in zip(
                tables, rows or [self.options.max_rows] * len(tables), strict=True
            )
        )
        self.layout = KeyedLayout(members, parts)
        self.steps = tf.Variable(0, dtype=tf.int64)
        self.group = KeyedGroup(
            Group(self.layout, rule_for(optimizer or keras.optimizers.SGD(1.0))),
            [DEVICE] * parts,
            seed,
            lambda part: self.steps.read_value(),
        )
        signature = [tf.TensorSpec([None], tf.int64) for _ in tables]
        self._pulls = {
            is_training: tf.function(
                self._pull_of(is_training), autograph=False, input_signature=signature
            )
            for is_training in (False, True)
        }
        saved = SavedKeys(
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, 3], tf.int32),
            tf.TensorSpec([None, self.group.row.lines, self.group.row.width], row_dtype),
        )
        self._puts = [
            tf.function(
                functools.partial(self.group.put, part), autograph=False, input_signature=[saved]
            )
            for part in range(parts)
        ]
        self._push = tf.function(self._pushed, autograph=False, reduce_retracing=True)

    def pull(self, *keys, is_training=True):
        """Pulls rows of keys, of each table in its order."""
        asked = [tf.constant(np.asarray(some, np.int64)) for some in keys]
        asked += [tf.zeros([0], tf.int64)] * (len(self.tables) - len(asked))
        rows, pulled = self._pulls[is_training](*asked)
        rows, ends = rows.numpy(), np.cumsum([len(some) for some in keys])[:-1]
        parts = np.split(rows, ends)
        return Pull(np.stack(parts) if len({len(p) for p in parts}) == 1 else parts, pulled)

    def push(self, pull, gradient=1.0, step=None):
        """Applies a gradient `[u, dim]`, or a number, of each distinct row that was pulled."""
        pulled = pull.pulled
        shape = [int(tf.size(pulled.ids)), self.dim]
        values = tf.constant(np.broadcast_to(np.asarray(gradient, np.float32), shape))
        step = self.steps.read_value() if step is None else tf.constant(step, tf.int64)
        self._push(pulled, values, step)
        self.steps.assign_add(1)

    def train(self, *keys, gradient=1.0):
        """A pull and its push."""
        pull = self.pull(*keys)
        self.push(pull, gradient)
        return pull

    def counts(self, table=0):
        return self.group.counts()[self.tables[table]]

    def saved(self):
        """All rows of all parts, in the order of their hashes."""
        parts = [self.group.save(part) for part in range(self.layout.parts)]
        return SavedKeys(
            *(
                np.concatenate([each.numpy() for each in field])
                for field in zip(*parts, strict=True)
            )
        )

    def known(self, table=0):
        """The keys of a table that have a row."""
        saved = self.saved()
        mine = saved.hashes[saved.records[:, 0] == table]
        return set(keys_of_array(mine, self.layout.salts[table]).tolist())

    def restore(self, saved):
        """Takes the rows from all keys, and gives them those that were saved on any parts."""
        self.group.clear()
        owners = self.layout.part_of_hashes(saved.hashes)
        for part in range(self.layout.parts):
            mine = owners == part
            self._puts[part](SavedKeys(*(tf.constant(each[mine]) for each in saved)))

    def _pull_of(self, is_training):
        def pull(*keys):
            asked = self.layout.ids_in_group(list(range(len(self.tables))), keys)
            pulled = self.group.pull(asked, is_training=is_training)
            return tf.gather(pulled.rows, pulled.inverse), pulled

        return pull

    def _pushed(self, pulled, gradient, step):
        for part, sent in enumerate(self.group.send(pulled, gradient)):
            with tf.device(DEVICE):
                self.group.apply(part, sent, step)
