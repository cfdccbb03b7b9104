"""The peer: PyTorch's DistributedDataParallel over gloo, one fused table with sparse gradients.

`torch.optim.Adagrad` for the table and the MLP. Batches are tensors in memory, or with
`--input=files` read from the TFRecords that tfps reads. Training is synchronous, so the first
worker counts for all.
"""

import argparse
import os

import torch
from torch import distributed

from benchmarks import models
from benchmarks.peers.torch_parts import Dense, begin, train


class Model(torch.nn.Module):
    """A model's dense part over the rows of one table of all categoricals."""

    def __init__(self, name: str, rows: int):
        super().__init__()
        rows_of_all = sum(models.table_rows(name, rows))
        self.table = torch.nn.Embedding(rows_of_all, models.DIM, sparse=True)
        torch.nn.init.uniform_(self.table.weight, -0.05, 0.05)
        self.dense = Dense(name)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Logits `[batch]`."""
        return self.dense(self.table(ids), numbers)


def run(flags: argparse.Namespace, cluster: dict[str, list[str]], _: str, index: int) -> None:
    """Trains as one of the workers."""
    begin(flags)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    address = f"tcp://{cluster['worker'][0]}"
    distributed.init_process_group(
        "gloo", init_method=address, rank=index, world_size=flags.workers
    )
    model = torch.nn.parallel.DistributedDataParallel(Model(flags.model, flags.rows))
    train(flags, model, model.parameters(), index, flags.workers)
