"""What tests of `trainer.collect` share: a config, its program, and what it has sealed."""

import os
import pathlib
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

import tensorflow as tf

from tests.loaded import client
from tfps.data import examples, manifest
from trainer.datasets.row_encoding import ConfiguredExperiment

CONFIG = """
import keras
import tfps

def get_config():
    features = (
        tfps.Feature("size", "float32", default=-1.0),
        tfps.Feature("name", "string"),
        tfps.Feature("number", "int64"),
    )
    task = tfps.task_of(model, tfps.Feature("clicked", "float32"), features)
    return tfps.Experiment("collected", task)

def model():
    size, name = keras.Input((), name="size"), keras.Input((), name="name", dtype="string")
    number = keras.Input((), name="number", dtype="int64")
    outputs = keras.layers.Dense(1)(keras.layers.Reshape((1,))(size))
    model = keras.Model([size, name, number], outputs)
    model.compile("sgd", "mse")
    return model
"""
PATIENCE = 110.0


def configured(directory: pathlib.Path) -> ConfiguredExperiment:
    """The config, as a file in a directory."""
    path = directory / "mine.py"
    path.write_text(CONFIG)
    return ConfiguredExperiment(str(path))


def collected(
    output: pathlib.Path, experiment: ConfiguredExperiment
) -> list[list[dict[str, object]]]:
    """The records of each dataset in order."""
    found = []
    for directory in sorted(output.iterdir()):
        sealed = manifest.read(str(directory))
        paths = [sealed.path_of(shard) for shard in sealed.shards]
        schema = experiment().task.schema()
        records = []
        for serialized in tf.data.TFRecordDataset(paths).batch(1024):
            features, labels = examples.parse(serialized, *schema)
            columns = {name: x.numpy() for name, x in {**features, **labels}.items()}
            rows = zip(*columns.values(), strict=True)
            records += [dict(zip(columns, each, strict=True)) for each in rows]
        assert len(records) == sealed.records
        found.append(records)
    return found


def killed_again_and_again(
    arguments: list[str], output: pathlib.Path, draw: random.Random, send: Callable[[], int]
) -> int:
    """Kills a collector 20 times at moments that are drawn, while messages keep coming.

    `send` sends some messages and gives the number of records of all so far; returns that, once a
    last collector has sealed all of them.
    """
    command = [sys.executable, "-m", "trainer.collect", *arguments, f"--output={output}"]
    sent, stop = [0], threading.Event()

    def keep_sending() -> None:
        while not stop.wait(0.05):
            sent[0] = send()

    def started() -> tuple[client.Fork, IO[bytes]]:
        argv = [*command, "--seconds=0.3", "--records=500"]
        fork = client.start(argv, {**os.environ, "PYTHONUNBUFFERED": "1"})
        assert fork is not None
        assert fork.stdout is not None
        return fork, fork.stdout

    sender = threading.Thread(target=keep_sending)
    sender.start()
    try:
        for _ in range(20):
            process, printed = started()
            with printed:
                for line in printed:
                    if b"records" in line:  # it has sealed one
                        break
                time.sleep(draw.uniform(0.0, 0.6))
                process.kill()
                process.wait(PATIENCE)
    finally:
        stop.set()
        sender.join()
    last, printed = started()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        sealed = [manifest.read(str(x.parent)) for x in output.glob("*/manifest.json")]
        if sum(each.records for each in sealed) >= sent[0]:
            break
        time.sleep(0.2)
    last.terminate()
    code = last.wait(PATIENCE)
    with printed:
        assert code == 0, printed.read()
    names = sorted(x.parent.name for x in output.glob("*/manifest.json"))
    assert names == [f"{number:06}" for number in range(1, len(names) + 1)]
    return sent[0]
