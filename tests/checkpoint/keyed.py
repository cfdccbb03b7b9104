"""A model with tables without vocabularies, and what trains its rows without a data set."""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

import tfps
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.keyed_layout import hashes_of_array
from tfps.store.parameter_store import ParameterStore

USERS, URLS = "users/table/embeddings", "urls/table/embeddings"


@dataclasses.dataclass(frozen=True)
class Keyed(tfps.Task):
    """Two tables without vocabularies that share a group, and one that has one."""

    max_rows: int = 400
    dim: int = 4
    rule: str = "adam"
    freezes: bool = False
    url_dim: int | None = None

    def features(self):
        return (
            tfps.Feature("user", "int64"),
            tfps.Feature("url", "string"),
            tfps.Feature("day", "int64", vocabulary=7),
        )

    def label(self):
        return tfps.Feature("label", "int64", vocabulary=2)

    def build_model(self):
        user = keras.Input((), name="user", dtype="int64")
        url = keras.Input((), name="url", dtype="string")
        day = keras.Input((), name="day", dtype="int64")
        users = tfps.DynamicEmbedding(self.dim, self.max_rows, name="users")
        users.trainable = not self.freezes
        urls = tfps.DynamicEmbedding(
            self.url_dim or self.dim, self.max_rows, key_dtype="string", name="urls"
        )
        days = keras.layers.Embedding(7, self.dim, name="days")
        days.trainable = not self.freezes
        joined = keras.layers.Concatenate()([users(user), urls(url), days(day)])
        return keras.Model([user, url, day], keras.layers.Dense(1, name="head")(joined))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.get({"class_name": self.rule, "config": {"learning_rate": 0.1}})

    def predictions(self, outputs):
        return keras.ops.sigmoid(outputs[:, 0])


@functools.cache
def model_of(task):
    return StatelessModel(task, seed=5)


def store_of(task, parts=2):
    """Parameters of a task that nobody has trained."""
    model = model_of(task)
    return ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, seed=5)


class RowTrainer:
    """Trains rows of a store by gradients that are told, an update after the other."""

    def __init__(self, store):
        self.store = store
        self._names = [table.name for table in store.layout.tables]
        self._trains = {}

    def train(self, table, keys):
        """Makes an update whose gradient of each key's row is different."""
        index, member = self.store.layout.group_of[self._names.index(table)]
        if (index, member) not in self._trains:
            signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64)]
            update = functools.partial(self._update, self.store.groups[index], member)
            self._trains[index, member] = tf.function(update, signature, autograph=False)
        step = self.store.steps()
        self._trains[index, member](tf.constant(keys, tf.int64), tf.constant(step, tf.int64))
        self.store.set_steps(step + 1)

    @staticmethod
    def _update(group, member, keys, step):
        pulled = group.pull(group.layout.ids_in_group([member], [keys]))
        size = [tf.size(pulled.ids), group.layout.dim]
        gradient = tf.random.stateless_normal(size, tf.stack([step, 3]))
        for part, sent in enumerate(group.send(pulled, gradient)):
            group.apply(part, sent, step)
        return tf.size(pulled.ids)


def rows_of(store):
    """All rows with keys by group and hash: table, last update, uses, and values with slots."""
    found = {}
    for group in store.keyed_groups:
        for part in range(len(store.devices)):
            saved = group.save(part)
            hashes = saved.hashes.numpy()
            assert (np.diff(hashes) > 0).all()
            assert (group.layout.part_of_hashes(hashes) == part).all()
            rows = zip(hashes.tolist(), saved.records.numpy(), saved.lines.numpy(), strict=True)
            for key, record, lines in rows:
                assert (group.layout.name, key) not in found
                found[group.layout.name, key] = (record.tobytes(), lines.tobytes())
    return found


def hash_of(store, table, key):
    """What a key of a table is known by, with its group's name."""
    names = [each.name for each in store.layout.tables]
    index, member = store.layout.group_of[names.index(table)]
    layout = store.groups[index].layout
    return layout.name, int(hashes_of_array(np.array([key]), layout.salts[member])[0])
