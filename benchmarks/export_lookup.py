"""Measures ways to find keys in an exported model: `python -m benchmarks.export_lookup`.

By TensorFlow's static hash table, as the export does it, by its other one, and by a binary search
over sorted hashes; and, as a floor, where the place of each key is known already. For each number
of keys and each way a SavedModel is made in one process and loaded in another: how long that takes,
what it holds, and CPU time per key of batches of 512 records with 26 keys each, and of single
records. A tenth of the keys is unknown. See benchmarks/README.md.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import pathlib
import sys
import tempfile
import time
from typing import Any

import keras
import numpy as np
import psutil
import tensorflow as tf

from benchmarks.keys_of_numbers import keys_of
from tfps.experiment.task import Table
from tfps.export.key_places import NOWHERE
from tfps.export.keyed_slices import KeyedSlices
from tfps.export.row_encoding import EXACT
from tfps.layers.key_options import KeyOptions
from tfps.store.keyed.hashing import hashes_of, hashes_of_array
from tfps.store.keyed.layout import KeyedLayout

DIM, FEATURES, BATCH = 16, 26, 512
UNKNOWN = 10  # a part in so many of the keys
SECONDS = 2.0  # that each measurement takes
LARGEST = np.iinfo(np.int64).max
KEYS = tf.TensorSpec([None], tf.int64, "ids")
EXPORT, SEARCH, DENSE, PLACES = "the export", "binary search", "DenseHashTable", "no search"


class Exported(tf.Module):
    """The variables and the graph of the export."""

    def __init__(self, layout: KeyedLayout, keys: np.ndarray, rows: np.ndarray):
        """Has rows of keys in the order of their hashes, and one behind the last."""
        super().__init__()
        slices = KeyedSlices(layout, EXACT, 0)
        hashes = hashes_of_array(keys, layout.salts[0])
        order = np.argsort(hashes)
        self.kept, self.resources = slices.variables, slices.resources
        self.kept[0].assign(np.append(hashes[order], LARGEST))
        self.kept[1].assign(np.concatenate([rows[order], np.zeros([1, DIM], np.float32)]))
        self._name, self._slices = layout.tables[0].name, slices

    @tf.function(input_signature=[KEYS], autograph=False)
    def look_up(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of keys, `[n, dim]`."""
        return self._slices.look_up(self._name, ids)


class Placed(tf.Module):
    """Rows in any order, whose places something else knows."""

    def __init__(self, layout: KeyedLayout, keys: np.ndarray, rows: np.ndarray):
        """Has rows of keys."""
        super().__init__()
        self.rows = tf.Variable(rows, trainable=False)
        self._salt = layout.salts[0]

    @tf.function(input_signature=[KEYS], autograph=False)
    def look_up(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of keys, `[n, dim]`."""
        places = self._places(hashes_of(ids, tf.constant(self._salt, tf.uint64)))
        rows = tf.gather(self.rows, tf.maximum(places, 0))
        return tf.where((places != NOWHERE)[:, tf.newaxis], rows, tf.zeros([DIM]))

    def _places(self, hashes: tf.Tensor) -> tf.Tensor:
        """The floor: any places."""
        return tf.math.floormod(hashes, tf.shape(self.rows, tf.int64)[0])


class Searched(Placed):
    """Rows in the order of their hashes, found by a binary search."""

    def __init__(self, layout: KeyedLayout, keys: np.ndarray, rows: np.ndarray):
        """Has rows of keys."""
        hashes = hashes_of_array(keys, layout.salts[0])
        order = np.argsort(hashes)
        super().__init__(layout, keys, rows[order])
        self._hashes = tf.Variable(hashes[order], trainable=False)

    def _places(self, hashes: tf.Tensor) -> tf.Tensor:
        sorted_hashes = tf.convert_to_tensor(self._hashes)
        places = tf.searchsorted(sorted_hashes, hashes, out_type=tf.int64)
        places = tf.minimum(places, tf.size(sorted_hashes, tf.int64) - 1)
        return tf.where(tf.gather(sorted_hashes, places) == hashes, places, NOWHERE)


class Hashed(Placed):
    """Rows whose places TensorFlow's dense hash table knows."""

    def __init__(self, layout: KeyedLayout, keys: np.ndarray, rows: np.ndarray):
        """Has rows of keys."""
        super().__init__(layout, keys, rows)
        self.table = tf.lookup.experimental.DenseHashTable(
            tf.int64,
            tf.int64,
            NOWHERE,
            empty_key=LARGEST,
            deleted_key=LARGEST - 1,
            initial_num_buckets=1 << int(1.6 * len(keys)).bit_length(),
        )
        hashes = tf.constant(hashes_of_array(keys, self._salt))
        self.table.insert(hashes, tf.range(len(keys), dtype=tf.int64))

    def _places(self, hashes: tf.Tensor) -> tf.Tensor:
        return self.table.lookup(hashes)


WAYS = {EXPORT: Exported, SEARCH: Searched, DENSE: Hashed, PLACES: Placed}


def main() -> int:
    """Prints a JSON line for each number of keys and each way; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--keys", default="100000,1000000,10000000")
    parser.add_argument("--way", choices=WAYS, action="append", help="default: all")
    parser.add_argument("--directory", help="where models are written, and deleted again")
    flags = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for count in map(int, flags.keys.split(",")):
        for way in flags.way or WAYS:
            with tempfile.TemporaryDirectory(dir=flags.directory) as directory:
                receiver, sender = context.Pipe(duplex=False)
                for work, more in ((save, ()), (measure, (sender,))):
                    process = context.Process(target=work, args=(way, count, directory, *more))
                    process.start()
                    process.join()
                    if process.exitcode:
                        return 1
                print(json.dumps(receiver.recv()), flush=True)
    return 0


def rows_of(count: int) -> np.ndarray:
    """Rows of so many keys: of the k-th key k modulo 1,000 in every place, and 1."""
    return np.repeat(1 + np.arange(count, dtype=np.float32)[:, np.newaxis] % 1_000, DIM, 1)


def save(way: str, count: int, directory: str) -> None:
    """Saves a model."""
    options = KeyOptions(count)
    table = Table("keys", count, DIM, keras.initializers.Zeros(), keys=options)
    model = WAYS[way](KeyedLayout((table,), 1), keys_of(np.arange(count)), rows_of(count))
    tf.saved_model.save(model, directory)


def measure(
    way: str, count: int, directory: str, sender: multiprocessing.connection.Connection
) -> None:
    """Loads and measures a model; sends what was seen."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.constant(0)  # starts TensorFlow's runtime
    process = psutil.Process()
    before = process.memory_info().rss
    began, cpu = time.monotonic(), time.process_time()
    model = tf.saved_model.load(directory)
    seen = {"way": way, "keys": count}
    seen["load_seconds"] = round(time.monotonic() - began, 2)
    seen["load_cpu_seconds"] = round(time.process_time() - cpu, 2)
    seen["resident_mib"] = (process.memory_info().rss - before) >> 20
    files = [each for each in pathlib.Path(directory).rglob("*") if each.is_file()]
    seen["files_mib"] = sum(each.stat().st_size for each in files) >> 20
    seen |= call(model, count, BATCH * FEATURES, "batch", way != PLACES)
    seen |= call(model, count, FEATURES, "record", way != PLACES)
    seen["resident_after_mib"] = (process.memory_info().rss - before) >> 20
    sender.send(seen)


def call(model: Any, count: int, asked: int, name: str, is_checked: bool) -> dict[str, float]:
    """Looks keys up for some seconds; the medians of CPU and of the clock, in µs a key."""
    draw = np.random.default_rng(0)
    walls, cpus = [], []
    began = time.monotonic()
    while time.monotonic() - began < SECONDS or len(walls) < 3:
        which = draw.integers(0, count + count // (UNKNOWN - 1), asked)
        keys = tf.constant(keys_of(which))
        wall, cpu = time.perf_counter(), time.process_time()
        rows = model.look_up(keys).numpy()
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
        expected = np.where(which < count, 1 + which % 1_000, 0)
        assert not is_checked or (rows == expected[:, np.newaxis]).all(), "wrong rows"
    found = {f"{name}_cpu_us_per_key": cpus, f"{name}_us_per_key": walls}
    return {key: round(1e6 * float(np.median(taken)) / asked, 3) for key, taken in found.items()}


if __name__ == "__main__":
    sys.exit(main())
