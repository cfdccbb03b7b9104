"""What the peers in PyTorch have in common: the records in memory, and the dense model."""

import argparse
import pathlib

import numpy as np
import torch

from benchmarks import models

ACCUMULATOR = 0.1  # Adagrad's initial one, Keras's default


def arrays(flags: argparse.Namespace) -> tuple[torch.Tensor, ...]:
    """Ids in the fused table `[n, 26]`, numbers `[n, 13]` and labels `[n]`, all in memory."""
    directory = pathlib.Path(flags.data, "arrays")
    ids = np.load(directory / "categoricals.npy")
    ids += np.arange(models.CATEGORICALS) * flags.rows
    labels = np.load(directory / "label.npy").astype(np.float32)
    numbers = np.load(directory / "integers.npy")
    return torch.from_numpy(ids), torch.from_numpy(numbers), torch.from_numpy(labels)


def part(values: torch.Tensor, batch: int, size: int) -> torch.Tensor:
    """One batch of an array, without a copy."""
    return values[batch * size : (batch + 1) * size]


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
