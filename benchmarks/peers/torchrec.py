"""The peer: TorchRec on CPUs in one process, with fbgemm's tables, whose backward updates them.

Batches are tensors in memory, or with `--input=files` read from the TFRecords that tfps reads.
"""

import argparse
from collections.abc import Iterator

import torch
from fbgemm_gpu.split_embedding_configs import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    SplitTableBatchedEmbeddingBagsCodegen as FusedTables,
)
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

from benchmarks import models
from benchmarks.peers.torch_parts import ACCUMULATOR, Dense, begin, train

_KEYS = [f"categorical_{number}" for number in range(models.CATEGORICALS)]


class Model(torch.nn.Module):
    """A model's dense part over a collection of tables."""

    def __init__(self, collection: torch.nn.Module, name: str):
        super().__init__()
        self.collection = collection
        self.dense = Dense(name)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Logits `[batch]`."""
        count = ids.numel()
        bags = KeyedJaggedTensor(
            _KEYS, ids.t().reshape(-1), lengths=torch.ones(count, dtype=torch.int32)
        )
        vectors = self.collection(bags).values()
        return self.dense(vectors.view(len(ids), -1, models.DIM), numbers)


def run(flags: argparse.Namespace, _: dict[str, list[str]], job: str, index: int) -> None:
    """Trains until this process is ended."""
    begin(flags)
    collection = FusedEmbeddingBagCollection(
        tables(flags),
        torch.optim.Adagrad,
        optimizer_kwargs(flags),
        device=torch.device("cpu"),
        location=EmbeddingLocation.HOST,
    )
    model = Model(collection, flags.model)
    begin_as_others(model)
    train(flags, model, model.dense.parameters(), index, 1)


def tables(flags: argparse.Namespace) -> list[EmbeddingBagConfig]:
    """The tables of the model, one for each categorical."""
    sizes = models.table_rows(flags.model, flags.rows)
    return [
        EmbeddingBagConfig(
            name=f"table_{key}",
            num_embeddings=size,
            embedding_dim=models.DIM,
            feature_names=[key],
        )
        for key, size in zip(_KEYS, sizes, strict=True)
    ]


def optimizer_kwargs(flags: argparse.Namespace) -> dict[str, float]:
    """Of the tables' Adagrad."""
    return {"lr": models.LEARNING_RATES[flags.model], "eps": 1e-10}


def begin_as_others(model: torch.nn.Module) -> None:
    """Gives rows and accumulators the initial values that every system begins with."""
    found = list(_fused_tables(model))
    assert found
    for each in found:
        for rows in each.split_embedding_weights():
            torch.nn.init.uniform_(rows, -0.05, 0.05)
        for accumulators in each.split_optimizer_states():
            for values in accumulators:
                values.fill_(ACCUMULATOR)


def _fused_tables(model: torch.nn.Module) -> Iterator[FusedTables]:
    # TorchRec keeps them in plain lists, which `modules()` does not look into.
    seen: set[int] = set()
    waiting = list(model.modules())
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if isinstance(module, FusedTables):
            yield module
        for held in ("_lookups", "_emb_modules"):
            for inner in module.__dict__.get(held, ()):
                waiting += inner.modules()
