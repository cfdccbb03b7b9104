"""The peer: PyTorch in one process, on a GPU or on the CPU; the model of `torch_ddp`.

Batches are tensors in memory, copied to the device. Mixed precision is `torch.autocast`, with a
scaled loss for float16; `--compile` is `torch.compile`.
"""

import argparse
import contextlib
from typing import Any

import torch

from benchmarks.peers.progress_lines import ProgressLines
from benchmarks.peers.torch_ddp import Model
from benchmarks.peers.torch_parts import adagrad, batches

_DTYPES = {"mixed_float16": torch.float16, "mixed_bfloat16": torch.bfloat16}


def run(flags: argparse.Namespace, _: dict[str, list[str]], job: str, index: int) -> None:
    """Trains until this process is ended."""
    torch.manual_seed(0)
    device = torch.device(flags.device)
    model: Any = Model(flags.model, flags.rows).to(device)
    optimizer = adagrad(flags, model.parameters())
    # The table's sparse gradients are no matter for a compiler.
    dense = torch.compile(model.dense) if flags.compile else model.dense
    dtype = _DTYPES.get(flags.precision)
    scales = dtype is torch.float16 and device.type == "cuda"
    scaler = torch.amp.GradScaler(device.type, enabled=scales)
    lines = ProgressLines()
    for steps, batch in enumerate(batches(flags, index), 1):
        ids, numbers, labels = (each.to(device, non_blocking=True) for each in batch)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype) if dtype else contextlib.nullcontext():
            logits = dense(model.table(ids), numbers)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        lines.show(steps * flags.batch, loss.detach())
