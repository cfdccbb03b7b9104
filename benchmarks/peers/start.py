"""Starts a peer: `python -m benchmarks.peers.start PEER --data=DIR …`.

Every task but the chief gets a process of its own, which runs the same program and finds its task
in TF_CONFIG. They are started before the peer's module, and with it a framework, is loaded here.
"""

import argparse
import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

Cluster = dict[str, list[str]]
PEERS = (
    *("tutorial", "fit", "mwms", "torch_ddp", "torch_one", "torch_rpc", "torchrec"),
    *("torchrec_dmp", "wire"),
)


def main() -> None:
    flags = parse()
    jobs = {
        "tutorial": {"ps": flags.ps, "worker": flags.workers, "chief": 1},
        "fit": {"ps": flags.ps, "worker": flags.workers, "chief": 1},
        "mwms": {"worker": flags.workers},
        "torch_ddp": {"worker": flags.workers},
        "torch_one": {"worker": 1},
        "torch_rpc": {"ps": 1, "worker": flags.workers},
        "torchrec": {"worker": 1},
        "torchrec_dmp": {"worker": flags.workers},
        "wire": {"ps": 1, "worker": flags.workers},
    }[flags.peer]
    if "TF_CONFIG" in os.environ:
        end_with_parent()
        config = json.loads(os.environ["TF_CONFIG"])
        run(flags, config["cluster"], config["task"]["type"], config["task"]["index"])
        return
    with started(jobs) as cluster:
        if "chief" in jobs:
            run(flags, cluster, "chief", 0)
        threading.Event().wait()


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("peer", choices=PEERS)
    add("--data", required=True, help="directory of a dataset of benchmarks.make_dataset")
    add("--model", default="embeddings_mlp", help="a model of benchmarks/models.py")
    add("--rows", type=int, default=20_000, help="rows of each table")
    add("--batch", type=int, default=512, help="records per step of one worker")
    add("--optimizer", default="adagrad", help="one of models.OPTIMIZERS")
    add("--input", choices=("memory", "files"), default="memory", help="of a peer in PyTorch")
    add("--workers", type=int, default=2)
    add("--ps", type=int, default=1)
    add("--intra_op_threads", type=int, default=1)
    add("--inter_op_threads", type=int, default=4)
    add("--lib", choices=("keras", "tf_keras"), default="tf_keras", help="of the tutorial loop")
    add("--device", default="cpu", help="of torch_one: cpu or cuda")
    add("--precision", default="float32", help="of torch_one, as Keras names policies")
    add("--compile", action="store_true", help="torch_one's dense part by torch.compile")
    return parser.parse_args()


def run(flags: argparse.Namespace, cluster: Cluster, job: str, index: int) -> None:
    """Runs one task of the peer."""
    peer = importlib.import_module(f"benchmarks.peers.{flags.peer}")
    peer.run(flags, cluster, job, index)


@contextlib.contextmanager
def started(jobs: Mapping[str, int]) -> Iterator[Cluster]:
    """Starts a process for every task but the chief's, which is this one; they end on leaving.

    Args:
        jobs: Number of tasks by type.

    Yields:
        The addresses of the tasks by type.
    """
    ports = iter(free_ports(sum(jobs.values())))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}
    processes = []
    try:
        for job in jobs:
            for index in range(jobs[job] if job != "chief" else 0):
                config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "benchmarks.peers.start", *sys.argv[1:]],
                        env=os.environ | {"TF_CONFIG": config},
                        stdin=subprocess.PIPE,
                    )
                )
        yield cluster
    finally:
        for process in processes:
            process.kill()
            process.wait()


def end_with_parent() -> None:
    """Ends this process when the one that started it is gone, which closes its stdin."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    main()
