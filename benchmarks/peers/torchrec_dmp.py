"""The peer: TorchRec's DistributedModelParallel over gloo, whole tables shared out to processes.

Training is synchronous. The tables are fbgemm's, as those of `torchrec`.
"""

import argparse
import os

import torch
from torch import distributed
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import EmbeddingBagCollection
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints

from benchmarks.peers import torchrec
from benchmarks.peers.torch_parts import begin, train


def run(flags: argparse.Namespace, cluster: dict[str, list[str]], _: str, index: int) -> None:
    """Trains as one of the workers."""
    begin(flags)
    host, _, port = cluster["worker"][0].rpartition(":")
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": str(index),
        "LOCAL_RANK": str(index),
        "WORLD_SIZE": str(flags.workers),
        "LOCAL_WORLD_SIZE": str(flags.workers),
    }
    distributed.init_process_group("gloo", rank=index, world_size=flags.workers)
    tables = torchrec.tables(flags)
    collection = EmbeddingBagCollection(device=torch.device("meta"), tables=tables)
    _apply_optimizer_in_backward(
        torch.optim.Adagrad, collection.parameters(), torchrec.optimizer_kwargs(flags)
    )
    model = torchrec.Model(collection, flags.model)
    topology = Topology(
        world_size=flags.workers, compute_device="cpu", local_world_size=flags.workers
    )
    sharders = [EmbeddingBagCollectionSharder()]
    constraint = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
    planner = EmbeddingShardingPlanner(
        topology=topology, constraints={table.name: constraint for table in tables}
    )
    plan = planner.collective_plan(model, sharders, distributed.group.WORLD)
    shared = DistributedModelParallel(
        model, device=torch.device("cpu"), plan=plan, sharders=sharders
    )
    torchrec.begin_as_others(shared)
    train(flags, shared, shared.module.dense.parameters(), index, flags.workers)
