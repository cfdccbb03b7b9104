"""The peer: a parameter server written by hand on torch.distributed.rpc.

The ps holds one fused table of all categoricals and the dense parameters as one vector, with
`torch.optim.Adagrad` for both, or `SparseAdam`, which is lazy, and `Adam`. A worker makes the
batch's ids unique, pulls the distinct rows and the vector in one call, computes, and pushes the
summed gradients in one call, which it awaits before its next push: the push overlaps the next pull.
Batches are tensors in memory, or with `--input=files` read from the TFRecords that tfps reads.
"""

import argparse
import os
import threading
from typing import Any

import torch
from torch.distributed import rpc
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks import models
from benchmarks.peers.progress_lines import ProgressLines
from benchmarks.peers.torch_parts import Batch, Dense, adagrad, batches, begin

RPC_THREADS = 4


class Server:
    """The parameters and their optimizer; only on the ps."""

    def __init__(self, flags: argparse.Namespace):
        rows = sum(models.table_rows(flags.model, flags.rows))
        self._table = torch.nn.Parameter(torch.empty(rows, models.DIM).uniform_(-0.05, 0.05))
        self._dense = torch.nn.Parameter(
            parameters_to_vector(Dense(flags.model).parameters()).detach()
        )
        self._optimizers = self._made(flags)
        self._lock = threading.Lock()
        self._batch = flags.batch
        self._steps = 0
        self._lines = ProgressLines()

    def _made(self, flags: argparse.Namespace) -> list[torch.optim.Optimizer]:
        if flags.optimizer == "adam":
            return [
                torch.optim.SparseAdam([self._table], models.ADAM_RATE),
                torch.optim.Adam([self._dense], models.ADAM_RATE),
            ]
        return [adagrad(flags, [self._table, self._dense])]

    @torch.no_grad()
    def pull(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows `[len(ids), dim]` and the dense parameters `[n]`."""
        return self._table.index_select(0, ids), self._dense.detach().clone()

    def push(self, ids: torch.Tensor, rows: torch.Tensor, dense: torch.Tensor, loss: float) -> None:
        """Applies the gradients of distinct rows and of the dense parameters."""
        with self._lock:
            self._table.grad = torch.sparse_coo_tensor(
                ids[None], rows, self._table.shape, is_coalesced=True, check_invariants=False
            )
            self._dense.grad = dense
            for optimizer in self._optimizers:
                optimizer.step()
            self._steps += 1
            self._lines.show(self._steps * self._batch, loss)


_server: Server | None = None


def pull(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`Server.pull`, called by a worker."""
    return _server.pull(ids)


def push(*gradients: Any) -> None:
    """`Server.push`, called by a worker."""
    _server.push(*gradients)


def run(flags: argparse.Namespace, cluster: dict[str, list[str]], job: str, index: int) -> None:
    """Trains as a worker, answers calls as the ps."""
    begin(flags)
    if job == "ps":
        globals()["_server"] = Server(flags)
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    rpc.init_rpc(
        f"{job}{index}",
        rank=0 if job == "ps" else 1 + index,
        world_size=1 + flags.workers,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=f"tcp://{cluster['ps'][0]}",
            num_worker_threads=RPC_THREADS,
            # TCP, as between machines; the default would be shared memory.
            _transports=["uv"],
            _channels=["basic"],
        ),
    )
    if job == "worker":
        train(flags, index)
    threading.Event().wait()  # calls are answered by other threads


def train(flags: argparse.Namespace, worker: int) -> None:
    """Trains until this process is ended."""
    given, model, pushed = batches(flags, worker), Dense(flags.model), None
    parameters = list(model.parameters())

    def next_batch() -> tuple[Batch, torch.Tensor, torch.Tensor]:
        batch = next(given)
        return batch, *torch.unique(batch.ids.view(-1), return_inverse=True)

    batch, distinct, places = next_batch()
    while True:
        rows, dense = rpc.rpc_sync("ps0", pull, args=(distinct,))
        vector_to_parameters(dense, parameters)
        rows.requires_grad_(True)
        vectors = torch.nn.functional.embedding(places, rows).view(flags.batch, -1, models.DIM)
        logits = model(vectors, batch.numbers)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
        model.zero_grad(set_to_none=True)
        loss.backward()
        gradients = parameters_to_vector([parameter.grad for parameter in parameters])
        if pushed is not None:
            pushed.wait()
        pushed = rpc.rpc_async(
            "ps0", push, args=(distinct, rows.grad, gradients, float(loss.detach()))
        )
        batch, distinct, places = next_batch()
