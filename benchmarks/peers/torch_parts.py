"""What the peers in PyTorch have in common: the records, in memory or from files, and the model."""

import argparse
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import models
from benchmarks.peers.progress_lines import ProgressLines

ACCUMULATOR = 0.1  # Adagrad's initial one, Keras's default


class Dense(torch.nn.Module):
    """The dense part of a model, with Keras's initial values."""

    def __init__(self, name: str):
        super().__init__()
        self._chains = torch.nn.ModuleList(map(_chain, models.CHAINS[name]))
        self._is_dlrm = name == "dlrm"
        first, second = torch.tril_indices(1 + models.CATEGORICALS, models.CATEGORICALS, offset=-1)
        self.register_buffer("_first", first, persistent=False)
        self.register_buffer("_second", second, persistent=False)

    def forward(self, vectors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Logits `[batch]` of embeddings `[batch, 26, dim]` and `[batch, 13]` numbers."""
        if not self._is_dlrm:
            return self._chains[0](torch.cat([vectors.flatten(1), numbers], 1))[:, 0]
        bottom = torch.relu(self._chains[0](numbers))
        stacked = torch.cat([bottom[:, None], vectors], 1)
        dots = torch.bmm(stacked, stacked.transpose(1, 2))[:, self._first, self._second]
        return self._chains[1](torch.cat([bottom, dots], 1))[:, 0]


def _chain(widths: tuple[int, ...]) -> torch.nn.Sequential:
    """Dense layers with ReLU between them."""
    layers: list[torch.nn.Module] = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [torch.nn.Linear(wide, narrow), torch.nn.ReLU()]
        torch.nn.init.xavier_uniform_(layers[-2].weight)
        torch.nn.init.zeros_(layers[-2].bias)
    return torch.nn.Sequential(*layers[:-1])


class Batch(NamedTuple):
    """Some records.

    Attributes:
        ids: Rows of each table or of the fused one, `[n, 26]` int64.
        numbers: `[n, 13]` float32.
        labels: `[n]` float32.
    """

    ids: torch.Tensor
    numbers: torch.Tensor
    labels: torch.Tensor


def begin(flags: argparse.Namespace) -> None:
    """Gives this process its threads, and what it draws its seed."""
    torch.set_num_threads(flags.intra_op_threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)


def adagrad(
    flags: argparse.Namespace, parameters: Iterable[torch.nn.Parameter]
) -> torch.optim.Adagrad:
    """The model's optimizer."""
    rate = models.LEARNING_RATES[flags.model]
    return torch.optim.Adagrad(parameters, lr=rate, initial_accumulator_value=ACCUMULATOR)


def train(
    flags: argparse.Namespace,
    model: torch.nn.Module,
    parameters: Iterable[torch.nn.Parameter],
    worker: int,
    workers: int,
) -> None:
    """Trains until this process is ended; the first of synchronous workers counts for all.

    `parameters` are those that no backward updates.
    """
    optimizer = adagrad(flags, parameters)
    lines = ProgressLines()
    for steps, batch in enumerate(batches(flags, worker), 1):
        optimizer.zero_grad(set_to_none=True)
        logits = model(batch.ids, batch.numbers)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
        loss.backward()
        optimizer.step()
        if worker == 0:
            lines.show(steps * flags.batch * workers, loss.detach())


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
    rows_of = _row_numbers(flags)
    for features, labels in tensorflow_parts.dataset(flags).as_numpy_iterator():
        yield Batch(
            torch.from_numpy(rows_of(features["categoricals"])),
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
    ids = _row_numbers(flags)(np.load(directory / "categoricals.npy"))
    labels = np.load(directory / "label.npy").astype(np.float32)
    numbers = np.load(directory / "integers.npy")
    return Batch(torch.from_numpy(ids), torch.from_numpy(numbers), torch.from_numpy(labels))


def _row_numbers(flags: argparse.Namespace) -> Callable[[np.ndarray], np.ndarray]:
    """Of all peers but TorchRec, which has a table for each categorical, in the fused table."""
    is_fused = not flags.peer.startswith("torchrec")
    return models.row_numbers(flags.model, flags.rows, is_fused)
