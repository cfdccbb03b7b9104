"""One of two replicas; says what TensorFlow made of SIGTERM, and of a collective without a peer."""

import os

os.environ["GRPC_FAIL_FAST"] = "use_caller"

import pathlib
import re
import signal

import tensorflow as tf

from tfps.allreduce.group import ReplicaGroup, _connect
from tfps.cluster.tf_config import decode


def main() -> None:
    """Meets the other, adds up, and again when it is told to."""
    cluster = decode(os.environ)
    _connect(cluster)
    taken = "was taken" if _has_handler(signal.SIGTERM) else "was left alone"
    group = ReplicaGroup(0 if cluster.job == "chief" else 1, 2)
    add = tf.function(lambda: group.sum(tf.ones([])), autograph=False).get_concrete_function()
    print(f"SIGTERM {taken}; the sum is {add().numpy()}", flush=True)
    input()
    try:
        add()
    except tf.errors.OpError as error:
        print(ReplicaGroup.is_loss(error), flush=True)


def _has_handler(number: signal.Signals) -> bool:
    """Whether this process handles a signal, be it in native code, which Python does not see."""
    [mask] = re.findall(r"SigCgt:\s*(\w+)", pathlib.Path("/proc/self/status").read_text())
    return bool(int(mask, 16) >> (number - 1) & 1)


if __name__ == "__main__":
    main()
    os._exit(0)
