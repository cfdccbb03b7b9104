"""Drives new keys through a table of few rows: `python -m benchmarks.endless_keys`.

One process is worker, chief and ps. Each step pulls and pushes as many keys as `--batch` that
nobody has asked for before, some of the last ones again, and `--constant` that come in every step;
whenever a checkpoint would be due, rows are forgotten as the chief has it done. Printed are memory,
rows and time as keys come, and how much longer than others the pulls took that made room. See
benchmarks/README.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

import keras
import numpy as np
import psutil
import tensorflow as tf

import tfps
from benchmarks.keys_of_numbers import keys_of
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.keyed.group import KeyedGroup
from tfps.store.keyed.hashing import keys_of_array
from tfps.store.messages import PulledRows
from tfps.store.parameter_store import ParameterStore
from trainer.chief.forgetting import Forgetting

DIM = 16
AGAIN = 8  # a part in so many of a step's keys came shortly before
REPORTS = 20
WARM_STEPS = 8  # in which graphs are traced, left out of what is said of single calls


def clicks(max_rows: int, evict_first: str) -> tfps.Task:
    """A table without a vocabulary, and as small a model as there can be around it.

    Args:
        max_rows: Of the table.
        evict_first: Whose rows make room.
    """

    def build() -> keras.Model:
        key = keras.Input((), name="key", dtype="int64")
        # Half as many keys as there are rows, so that some are forgotten and others make room.
        own = {"forget_after": max_rows // 2, "evict_first": evict_first}
        rows = tfps.DynamicEmbedding(DIM, max_rows, name="keys", **own)(key)
        model = keras.Model(key, keras.layers.Dense(1, activation="sigmoid")(rows))
        model.compile(keras.optimizers.Adagrad(0.05), "binary_crossentropy")
        return model

    label = tfps.Feature("label", "int64", vocabulary=2)
    return tfps.task_of(build, label, (tfps.Feature("key", "int64"),))


class Keys:
    """Keys that never came before, behind them some that came shortly before, and some constant.

    Attributes:
        seen: How many there have been, but for the constant ones.
        constant: Those that come in every step, `[n]` int64.
    """

    def __init__(self, batch: int, constant: int):
        """Has given none yet."""
        self._batch, self._draw, self.seen = batch, np.random.default_rng(0), 0
        self.constant = keys_of(-np.arange(1, constant + 1))

    def next(self) -> np.ndarray:
        """The keys of a step, `[n]` int64."""
        first = self.seen
        self.seen += self._batch
        least = max(0, first - 4 * self._batch)
        again = self._draw.integers(least, first + 1, self._batch // AGAIN)
        fresh = keys_of(np.concatenate([np.arange(first, self.seen), again]))
        return np.concatenate([fresh, self.constant])


class Timed:
    """How long calls of something took, in ms.

    Attributes:
        wall: On the clock, of each call.
        cpu: Of all threads of this process meanwhile.
    """

    def __init__(self, call: Callable[..., object]):
        """Calls it as it is called itself."""
        self._call, self.wall, self.cpu = call, [], []

    def __call__(self, *given: object) -> object:
        """Calls it."""
        began, cpu = time.perf_counter(), time.process_time()
        result = self._call(*given)
        self.cpu.append(1e3 * (time.process_time() - cpu))
        self.wall.append(1e3 * (time.perf_counter() - began))
        return result


class Driver:
    """Pulls and pushes.

    Attributes:
        group: That has the table.
        pull: Given keys `[n]`.
        push: Given what a pull gave.
        forget: Given how many updates and how many records there were.
        slices: Of rows that are looked through, that nobody can pull or push beside.
        made_room: For each pull, whether rows were taken from keys.
    """

    def __init__(self, task: tfps.Task):
        """Makes the parameters."""
        model = StatelessModel(task, seed=0)
        self._store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"], seed=0)
        [self.group] = self._store.keyed_groups
        keys = tf.TensorSpec([None], tf.int64)
        pull = tf.function(self._pulled, autograph=False, input_signature=[keys])
        push = tf.function(self._pushed, autograph=False, reduce_retracing=True)
        self.pull = Timed(lambda keys: _ready(pull(tf.constant(keys))))
        self.push = Timed(lambda pulled: push(pulled).numpy())
        forgetting = Forgetting(self._store, None)
        self.slices = Timed(self.group._forget[0])
        self.group._forget[0] = self.slices
        self.forget = Timed(forgetting.forget)
        self.made_room: list[bool] = []

    def step(self, keys: np.ndarray) -> None:
        """A pull, and its push."""
        before = self.counts()["evicted"]
        pulled = self.pull(keys)
        self.made_room.append(self.counts()["evicted"] > before)
        self.push(pulled)

    def counts(self) -> dict[str, int]:
        """What has happened to keys."""
        [counts] = self.group.counts().values()
        return counts

    def pauses(self) -> tuple[np.ndarray, np.ndarray]:
        """By how much longer than others each pull took that made room, in ms: wall and CPU."""
        made_room = np.array(self.made_room[WARM_STEPS:])
        both = []
        for each in (self.pull.wall, self.pull.cpu):
            taken = np.array(each[WARM_STEPS:])
            both.append(taken[made_room] - np.median(taken[~made_room]))
        return both[0], both[1]

    def _pulled(self, keys: tf.Tensor) -> PulledRows:
        return self.group.pull(self.group.layout.ids_in_group([0], [keys]))

    def _pushed(self, pulled: PulledRows) -> tf.Tensor:
        step = self._store.update_counts.add(0, [pulled.rows], {})
        [sent] = self.group.send(pulled, 0.1 + pulled.rows)
        return self.group.apply(0, sent, step)[0]


def _ready(pulled: PulledRows) -> PulledRows:
    """What was pulled, once it is there."""
    pulled.rows.numpy()
    return pulled


def main() -> int:
    """Measures; prints lines of JSON; returns the exit code."""
    flags = parse()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    driver = Driver(clicks(flags.max_rows, flags.evict_first))
    keys = Keys(flags.batch, flags.constant)
    steps = -(-flags.keys // flags.batch)
    due = max(1, flags.forget_every // flags.batch)
    last, began, cpu = 0, time.perf_counter(), time.process_time()
    for step in range(1, steps + 1):
        driver.step(keys.next())
        if step % due == 0:
            driver.forget(step, keys.seen)
        if step % max(1, steps // REPORTS) == 0 or step == steps:
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
            report(driver, keys.seen, keys.seen - last, seconds, cpu_seconds)
            last, began, cpu = keys.seen, time.perf_counter(), time.process_time()
    summary(driver)
    check(driver.group, driver.counts(), keys, flags.max_rows)
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--keys", type=int, default=10_000_000, help="that come once at least")
    add("--max_rows", type=int, default=1_000_000)
    add("--batch", type=int, default=8_192, help="new keys in a step")
    add("--constant", type=int, default=1_000, help="keys that come in every step")
    add("--forget_every", type=int, default=2_000_000, help="keys, when a checkpoint would be due")
    add("--evict_first", choices=("least_recent", "least_frequent"), default="least_recent")
    return parser.parse_args()


def report(driver: Driver, seen: int, of_late: int, seconds: float, cpu_seconds: float) -> None:
    """Prints what is there after some keys, and what the last ones took."""
    counts = driver.counts()
    line = {
        "keys": seen,
        "resident_mib": psutil.Process().memory_info().rss >> 20,
        **{name: counts[name] for name in ("rows", "admitted", "evicted", "forgotten")},
        "us_per_key": round(1e6 * seconds / of_late, 2),
        "cpu_us_per_key": round(1e6 * cpu_seconds / of_late, 2),
    }
    print(json.dumps(line), flush=True)


def summary(driver: Driver) -> None:
    """Prints how long single calls took, but for the first, which trace graphs."""
    calls = {
        "pull": (driver.pull, WARM_STEPS),
        "push": (driver.push, WARM_STEPS),
        "forget": (driver.forget, 1),
        "forget a slice": (driver.slices, 1),
    }
    for name, (timed, first) in calls.items():
        wall, cpu = np.array(timed.wall[first:]), np.array(timed.cpu[first:])
        if len(wall):
            print(json.dumps({"call": name, "calls": len(wall), **_spread(wall, cpu)}))
    if any(driver.made_room[WARM_STEPS:]):
        wall, cpu = driver.pauses()
        all_seconds = sum(driver.pull.wall) + sum(driver.push.wall) + sum(driver.forget.wall)
        shares = {
            "share_of_time": round(wall.clip(0).sum() / all_seconds, 4),
            "forget_share_of_time": round(sum(driver.forget.wall) / all_seconds, 4),
        }
        line = {"call": "making room", "calls": len(wall), **_spread(wall, cpu), **shares}
        print(json.dumps(line), flush=True)


def _spread(wall: np.ndarray, cpu: np.ndarray) -> dict[str, float]:
    found = {}
    for name, taken in (("ms", wall), ("cpu_ms", cpu)):
        found |= {f"median_{name}": np.median(taken), f"p99_{name}": np.percentile(taken, 99)}
        found[f"longest_{name}"] = taken.max()
    return {name: round(float(value), 2) for name, value in found.items()}


def check(group: KeyedGroup, counts: dict[str, int], keys: Keys, max_rows: int) -> None:
    """Checks that what is left is what must be.

    Raises:
        AssertionError: If a key has two rows, or another number of rows than was counted, or if one
            that came in every step has none.
    """
    hashes = group.in_order(0)[0].numpy()
    assert (hashes[1:] > hashes[:-1]).all(), "a key has two rows"
    assert len(hashes) == counts["rows"] <= max_rows, (len(hashes), counts)
    left = counts["admitted"] - counts["evicted"] - counts["forgotten"]
    assert left == counts["rows"], counts
    assert counts["refused"] == counts["dropped"] == 0, counts
    assert counts["admitted"] == keys.seen + len(keys.constant), counts
    known = keys_of_array(hashes, group.layout.salts[0])
    assert np.isin(keys.constant, known).all(), "a key that came in every step has lost its row"


if __name__ == "__main__":
    sys.exit(main())
