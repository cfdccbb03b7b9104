"""What the peers in PyTorch have in common: the records, in memory or from files, and the model."""

import argparse
import itertools
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import models

ACCUMULATOR = 0.1  # Adagrad's initial one, Keras's default


class Batch(NamedTuple):
    """Some records.

    Attributes:
        ids: Rows of the fused table, `[n, 26]` int64.
        numbers: `[n, 13]` float32.
        labels: `[n]` float32.
    """

    ids: torch.Tensor
    numbers: torch.Tensor
    labels: torch.Tensor


def batches(flags: argparse.Namespace, worker: int) -> Iterator[Batch]:
    """The records, over and over: from TFRecords with `--input=files`, else from memory.

    Args:
        flags: Of the peer.
        worker: Whose share comes first.
    """
    return _read(flags) if flags.input == "files" else _held(flags, worker)


def _read(flags: argparse.Namespace) -> Iterator[Batch]:
    """What tf.data reads, shuffles and parses in its threads; PyTorch has nothing as fast."""
    from benchmarks.peers import tensorflow_parts

    tensorflow_parts.set_threads(flags)
    offsets = np.arange(models.CATEGORICALS) * flags.rows
    for features, labels in tensorflow_parts.dataset(flags).as_numpy_iterator():
        yield Batch(
            torch.from_numpy(features["categoricals"] + offsets),
            torch.from_numpy(features["integers"]),
            torch.from_numpy(labels[:, 0].astype(np.float32)),
        )


def _held(flags: argparse.Namespace, worker: int) -> Iterator[Batch]:
    """Slices of arrays, without a copy."""
    held = _arrays(flags)
    count = len(held.labels) // flags.batch
    for step in itertools.count(worker * count // flags.workers):
        first = step % count * flags.batch
        yield Batch(*(values[first : first + flags.batch] for values in held))


def _arrays(flags: argparse.Namespace) -> Batch:
    """All records."""
    directory = pathlib.Path(flags.data, "arrays")
    ids = np.load(directory / "categoricals.npy")
    ids += np.arange(models.CATEGORICALS) * flags.rows
    labels = np.load(directory / "label.npy").astype(np.float32)
    numbers = np.load(directory / "integers.npy")
    return Batch(torch.from_numpy(ids), torch.from_numpy(numbers), torch.from_numpy(labels))


def mlp() -> torch.nn.Sequential:
    """The dense part of the model, with Keras's initial values."""
    width = models.CATEGORICALS * models.DIM + models.INTEGERS
    layers = [
        *(torch.nn.Linear(width, 128), torch.nn.ReLU()),
        *(torch.nn.Linear(128, 64), torch.nn.ReLU()),
        torch.nn.Linear(64, 1),
    ]
    for layer in layers[::2]:
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return torch.nn.Sequential(*layers)
