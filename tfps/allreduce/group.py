"""The replicas that train together without ps, and what they send each other."""

import concurrent.futures
import functools
import re
import signal
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfps.cluster.failures import first_line
from tfps.cluster.liveness import ask_all
from tfps.cluster.spec import Cluster, port_error, refuse_taken_port
from tfps.coordinator.executor import LocalExecutor
from tfps.errors import RunError, UserError
from tfps.job_dir.task_name import TaskName

_POLL_SECONDS = 0.25
_HOST = "/device:CPU:0"
# Keys of the groups that TensorFlow's strategy makes for itself count from 1.
_HOST_GROUP, _DEVICE_GROUP = 1000, 1001
AUTO, NCCL = "auto", "nccl"  # TensorFlow's hints: a ring over gRPC, or NCCL from GPU to GPU
_BLOCK = 8192  # numbers
_BLOCKS = 1 << 20  # that are gathered at most, from each replica
# What the death of a peer ends in, whatever collective was under way; storage that does not answer
# ends in errors of the same kinds.
_OF_LOSS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_OF_GROUP = re.compile(r"Collective|/job:(chief|worker)/")


class LostReplicaError(RunError):
    """A replica went away: the others cannot continue without it, nor it without them."""


class ReplicaGroup:
    """One of equal replicas with the same collectives in one order: chief 0, worker k is k + 1."""

    def __init__(self, index: int, size: int, device: str = _HOST, hint: str = AUTO):
        self.index = index
        self.size = size
        self.is_ordered = hint == NCCL
        self._device = device
        self._hint = hint
        self._instances = 0
        numbers = functools.partial(self.gather, on_host=True)
        self._gather_one = _function(numbers, tf.TensorSpec([1], tf.int64))
        self._gather_many = _function(numbers, tf.TensorSpec([None], tf.int64))
        self._broadcasts: dict[tuple[tf.DType, tuple[int, ...]], Callable[..., tf.Tensor]] = {}

    @classmethod
    def join(cls, cluster: Cluster, check: Callable[[], None], hint: str = AUTO) -> "ReplicaGroup":
        """Waits for all other replicas; in the main thread, before TensorFlow is used for anything.

        `check` runs several times a second and raises when waiting longer makes no sense. `hint` is
        `NCCL` where each replica has a GPU of its own, else `AUTO`.
        """
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        if hint == NCCL and not has_gpu:
            raise UserError(
                "--collectives=nccl: TensorFlow sees no GPU here, and NCCL sends from GPU to GPU; "
                "leave it out"
            )
        refuse_taken_port(cluster)
        on_sigterm = signal.getsignal(signal.SIGTERM)
        # In a thread of its own: TensorFlow waits for an hour.
        thread = concurrent.futures.ThreadPoolExecutor(1, "join")
        joining = thread.submit(_connect, cluster)
        while not concurrent.futures.wait([joining], _POLL_SECONDS).done:
            check()
        try:
            joining.result()
        except RuntimeError as error:
            raise UserError(
                "the config, or a module that it imports, uses TensorFlow while it is loaded "
                f"({error}); leave that to the task's methods"
            ) from None
        except tf.errors.UnknownError as error:
            raise port_error(cluster, error.message) from None
        except tf.errors.OpError as error:
            raise LostReplicaError(f"not all replicas came together: {first_line(error)}") from None
        # TensorFlow takes this signal for itself when replicas meet.
        signal.signal(signal.SIGTERM, on_sigterm)
        index = 0 if cluster.job == "chief" else 1 + cluster.index
        return cls(index, 1 + len(cluster.workers), "/device:GPU:0" if has_gpu else _HOST, hint)

    @staticmethod
    def is_loss(error: BaseException) -> bool:
        """Whether an error of a collective means that a replica went away."""
        return isinstance(error, _OF_LOSS) and bool(_OF_GROUP.search(str(error)))

    def sum(self, value: tf.Tensor) -> tf.Tensor:
        """The sum over all replicas, bit for bit the same on each; in a graph."""
        with tf.device(self._device):
            return tf.raw_ops.CollectiveReduceV2(
                input=value,
                group_size=self.size,
                group_key=_DEVICE_GROUP,
                instance_key=self._instance(),
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                communication_hint=self._hint,
            )

    def gather(self, value: tf.Tensor, on_host: bool = False) -> tf.Tensor:
        """In a graph: `[n]` of each replica as `[size, n]`; few numbers may go `on_host`."""
        count, key = tf.shape(value)[0], tf.constant(self._instance())
        padded = value
        if value.shape[0] is None:  # A collective, as its key names it, is of one shape for ever.
            blocks = -(-count // _BLOCK)
            padded, key = tf.pad(value, [[0, blocks * _BLOCK - count]]), key + blocks
        with tf.device(_HOST if on_host else self._device):
            gathered = tf.raw_ops.CollectiveGatherV2(
                input=padded,
                group_size=self.size,
                group_key=_HOST_GROUP if on_host else _DEVICE_GROUP,
                instance_key=key,
                ordering_token=[],
                communication_hint=AUTO if on_host else self._hint,
            )
        return tf.reshape(gathered, [self.size, -1])[:, :count]

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The bytes that every replica gives, by their numbers."""
        lengths = self._gather_one(tf.constant([len(mine)], tf.int64)).numpy()[:, 0].tolist()
        # Collectives know no bytes: they travel as numbers of eight.
        padded = np.zeros([-(-max(lengths) // 8) * 8], np.uint8)
        padded[: len(mine)] = np.frombuffer(mine, np.uint8)
        rows = self._gather_many(tf.constant(padded.view(np.int64))).numpy()
        return [row.tobytes()[:length] for row, length in zip(rows, lengths, strict=True)]

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        """The chief's value on every replica; shape and dtype are the same on all."""
        kind = value.dtype, tuple(value.shape)
        if kind not in self._broadcasts:
            self._broadcasts[kind] = _function(self._broadcast, tf.TensorSpec(kind[1], kind[0]))
        return self._broadcasts[kind](value)

    def _broadcast(self, value: tf.Tensor) -> tf.Tensor:
        keys = {"group_size": self.size, "group_key": _HOST_GROUP, "instance_key": self._instance()}
        with tf.device(_HOST):
            if self.index:
                return tf.raw_ops.CollectiveBcastRecvV2(shape=value.shape, T=value.dtype, **keys)
            return tf.raw_ops.CollectiveBcastSendV2(input=value, **keys)

    def _instance(self) -> int:
        """The first of many keys for a new collective, equal on all, which trace in one order."""
        self._instances += _BLOCKS
        return self._instances


def _function(graph: Callable[..., tf.Tensor], spec: tf.TensorSpec) -> Callable[..., tf.Tensor]:
    """The graph, made now: when it is called matters for the keys of collectives."""
    function = tf.function(graph, input_signature=[spec], autograph=False)
    made: Callable[..., tf.Tensor] = function.get_concrete_function()
    return made


def _connect(cluster: Cluster) -> None:
    """Starts this task's server and meets the others; collectives work from then on."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.spec()),
        task_type=cluster.job,
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    tf.distribute.MultiWorkerMirroredStrategy(resolver)


class ReplicaExecutor(LocalExecutor):
    """One of several equal processes, which hold the same parameters."""

    def __init__(self, group: ReplicaGroup):
        super().__init__()
        self.group = group

    @classmethod
    def join(cls, cluster: Cluster, limit_seconds: float, hint: str = AUTO) -> "ReplicaExecutor":
        """Waits for all other replicas, where there are no ps; as the chief."""
        deadline = time.monotonic() + limit_seconds

        def refuse_late() -> None:
            if time.monotonic() < deadline:
                return
            addresses = {TaskName("chief", 0): cluster.chief[0], **cluster.peers()}
            del addresses[cluster.task]
            results = ask_all(addresses.values())
            away = [
                f"{task} at {address}: {seen.value}, {seen.what_to_do}"
                for task, address in addresses.items()
                if not (seen := results[address].liveness).answers
            ]
            if away:
                raise UserError(
                    f"not all replicas answered within {limit_seconds:.0f} s: {'; '.join(away)}"
                )
            raise RunError(
                f"all replicas answer, but have not come together within {limit_seconds:.0f} s; "
                "look in their logs, and whether all have the same TF_CONFIG but for the task"
            )

        return cls(ReplicaGroup.join(cluster, refuse_late, hint))
