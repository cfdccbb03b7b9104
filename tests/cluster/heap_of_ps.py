"""How much a ps keeps for each time that a chief asks for a value: printed as JSON, by way.

python -m tests.cluster.heap_of_ps
"""

import ctypes
import json
import subprocess
import sys

import tensorflow as tf

from cloud.local.command import Ports
from tests.project import ROOT
from tfps.cluster.fetching import fetched

CALLS = 300
PS = "/job:ps/task:0"


class Heap(ctypes.Structure):
    """What glibc's `mallinfo2` says."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def serve(cluster: dict[str, list[str]]) -> None:
    """Is the ps, and says for each line that it reads how many bytes are in use."""
    found = ctypes.CDLL("libc.so.6").mallinfo2
    found.restype = Heap
    server = tf.distribute.Server(cluster, job_name="ps", task_index=0, protocol="grpc")
    for _ in sys.stdin:
        print(found().uordblks, flush=True)
    del server


def main() -> None:
    with Ports(2) as ports:
        chief, ps = (f"127.0.0.1:{number}" for number in ports.numbers)
        cluster = {"chief": [chief], "ps": [ps]}
    program = [sys.executable, "-m", "tests.cluster.heap_of_ps", json.dumps(cluster)]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as served:

        def used() -> int:
            served.stdin.write("\n")
            served.stdin.flush()
            return int(served.stdout.readline())

        used()
        spec = tf.train.ClusterSpec(cluster)
        tf.config.experimental_connect_to_cluster(spec, job_name="chief", task_index=0)
        print(json.dumps({way.__name__: kept(way, used) for way in (by_numpy, fetched)}))
        served.stdin.close()


def by_numpy(value: tf.Tensor) -> float:
    return value.numpy()


def kept(way, used) -> float:
    with tf.device(PS):
        variable = tf.Variable(1.0)

    @tf.function
    def ask():
        with tf.device(PS):
            return variable.read_value() + 1.0

    for _ in range(50):
        assert way(ask()) == 2.0
    before = used()
    for _ in range(CALLS):
        way(ask())
    return (used() - before) / CALLS


if __name__ == "__main__":
    serve(json.loads(sys.argv[1])) if len(sys.argv) > 1 else main()
