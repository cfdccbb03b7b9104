"""Clicks of users on pages: raw numbers and strings, one of each and in bags, no vocabulary."""

import dataclasses

import keras
import numpy as np

import tfps

USERS, PAGES, ITEMS = 300, 200, 150


@dataclasses.dataclass(frozen=True)
class RawKeys(tfps.Task):
    """What a user, a page and the items seen before add up to.

    Attributes:
        max_rows: Of each table.
        admit_after: Occurrences after which a key has a row.
        evict_first: Whose rows make room.
        is_narrow: Whether rows are bfloat16, and have one accumulator each.
    """

    max_rows: int = 1_000
    admit_after: int = 1
    evict_first: str = "least_recent"
    is_narrow: bool = False

    def features(self):
        return (
            tfps.Feature("user", "int64"),
            tfps.Feature("page", "string"),
            tfps.Feature("seen", "int64", (None,)),
        )

    def label(self):
        return tfps.Feature("clicked", "int64", vocabulary=2)

    def build_model(self):
        user = keras.Input((), name="user", dtype="int64")
        page = keras.Input((), name="page", dtype="string")
        seen = keras.Input((None,), name="seen", dtype="int64", ragged=True)
        own = {"admit_after": self.admit_after, "evict_first": self.evict_first}
        own["row_dtype"] = "bfloat16" if self.is_narrow else "float32"
        rows = [
            tfps.DynamicEmbedding(4, self.max_rows, name="users", **own)(user),
            tfps.DynamicEmbedding(4, self.max_rows, "string", name="pages", **own)(page),
            tfps.DynamicEmbedding(4, self.max_rows, combiner="mean", name="items", **own)(seen),
        ]
        hidden = keras.layers.Concatenate()(rows)
        return keras.Model([user, page, seen], keras.layers.Dense(1)(hidden))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adagrad(0.2)

    def table_optimizer(self, table):
        return tfps.RowWiseAdagrad(0.2) if self.is_narrow else self.optimizer()

    def predictions(self, outputs):
        return keras.ops.sigmoid(outputs[:, 0])


def columns(records, seed):
    """Features and labels that are drawn from what users and pages like."""
    world, draw = np.random.default_rng(0), np.random.default_rng(seed)
    users = world.integers(-(2**63), 2**63 - 1, USERS, endpoint=True)
    users[:4] = [-(2**63), 2**63 - 1, -1, 0]
    pages = np.array(["", *(f"https://example.org/{k}" for k in range(1, PAGES))], object)
    likes = world.normal(size=USERS), world.normal(size=PAGES)
    user, page = draw.integers(0, USERS, records), draw.integers(0, PAGES, records)
    seen = [
        (draw.integers(0, ITEMS, length) * 7_919).tolist()
        for length in draw.integers(0, 4, records)
    ]
    chance = 1 / (1 + np.exp(-1.5 * (likes[0][user] + likes[1][page])))
    features = {"user": users[user], "page": pages[page], "seen": seen}
    return features, (draw.random(records) < chance).astype(np.int64)


def write(directory, records, seed, shards=4):
    """Writes a dataset."""
    task = RawKeys()
    features, clicked = columns(records, seed)
    tfps.write_dataset(
        str(directory),
        features,
        clicked,
        features=task.features(),
        label=task.label(),
        shards=shards,
    )


def get_config():
    """The experiment."""
    return tfps.Experiment("raw_keys", RawKeys(), train=tfps.Train(batch_size=64, epochs=2))
