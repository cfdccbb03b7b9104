"""One of several replicas that train rounds of given batches; the chief compares what became of it.

`python -m tests.integration.replica_program`, with its task in TF_CONFIG. The chief prints one line
of JSON for each optimizer: whether all replicas hold the same parameters, bit for bit, and how far
these are from those of one process that trained the batches of all replicas as one.
"""

import dataclasses
import hashlib
import json
import os

os.environ["GRPC_FAIL_FAST"] = "use_caller"

import keras
import numpy as np
import tensorflow as tf

from configs.smoke import Smoke
from tfps.allreduce.group import ReplicaGroup
from tfps.allreduce.step import ReplicaStep
from tfps.cluster.tf_config import decode
from tfps.model.inputs import batch_spec
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step

ROUNDS, BATCH, ROWS = 100, 8, 40
# Records of the replicas' batches, in turn; at the end of a lease some are small, or empty.
SIZES = ((BATCH, BATCH), (BATCH, 5), (3, BATCH), (BATCH, 0), (0, BATCH))
OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "Adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=1.0),
    "Adam of each": lambda: keras.optimizers.Adam(0.01, clipnorm=0.5),
}


@dataclasses.dataclass(frozen=True)
class TwoGroups(Smoke):
    """Two tables of different dimensions, one of which is asked twice for each record."""

    optimizer_name: str = ""

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        wide = keras.layers.Embedding(ROWS, 4, name="wide")
        thin = keras.layers.Embedding(ROWS, 1, name="thin")
        found = [wide(token), wide((token * 7 + 3) % ROWS), thin(token), numbers]
        hidden = keras.layers.Dense(
            8, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01)
        )(keras.layers.Concatenate()(found))
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))

    def optimizer(self):
        return OPTIMIZERS[self.optimizer_name]()


def parts(task):
    """A store, and its step."""
    model = StatelessModel(task, 0)
    repeated_ids = "each" if task.optimizer_name.endswith("each") else "sum"
    rules = Rules.of(task, model, repeated_ids=repeated_ids)
    store = ParameterStore(model, rules, ["/device:CPU:0"], 0)
    return store, Step(task, model, store)


def values(store):
    return {slice_.name: slice_.variable.numpy() for slice_ in store.slices()}


def batch(numbers, tokens, labels):
    features = {"numbers": tf.constant(numbers), "token": tf.constant(tokens)}
    return features, {"label": tf.constant(labels)}


def compare(group, name):
    """Trains with one optimizer; returns what the chief is to print."""
    task = TwoGroups(vocabulary=ROWS, optimizer_name=name)
    store, step = parts(task)
    alone, step_alone = parts(task)
    together = ReplicaStep(step, group)
    # Traced once: the keys of its collectives must be the same on all replicas.
    specs = [{f.name: batch_spec(f) for f in some} for some in (task.features(), task.labels())]
    signature = [*specs, tf.TensorSpec([2], tf.int64)]
    train = tf.function(together.train, input_signature=signature, autograph=False)
    train_alone = tf.function(
        lambda features, labels, seed: step_alone.train(step_alone.pull(features, labels), seed),
        input_signature=signature,
        autograph=False,
    )
    draw = np.random.default_rng(0)
    seed = tf.zeros([2], tf.int64)
    losses = []
    for number in range(ROUNDS):
        sizes = SIZES[number % len(SIZES)]
        count = sum(sizes)
        numbers = draw.normal(size=[count, 4]).astype(np.float32)
        tokens, labels = draw.integers(0, ROWS, count), draw.integers(0, 2, count)
        first = sum(sizes[: group.index])
        mine = slice(first, first + sizes[group.index])
        trained = train(*batch(numbers[mine], tokens[mine], labels[mine]), seed)
        assert int(trained.records) == count
        if group.index == 0:
            alone_loss = train_alone(*batch(numbers, tokens, labels), seed)
            losses.append(abs(float(trained.loss) - float(alone_loss)))
    mine, theirs = values(store), values(alone)
    digest = hashlib.sha256(b"".join(mine[key].tobytes() for key in sorted(mine))).digest()
    difference = max(float(np.abs(mine[key] - theirs[key]).max()) for key in mine)
    moved = float(np.abs(mine["dense"]).max())
    return {
        "optimizer": name,
        "equal": len(set(group.gather_bytes(digest))) == 1,
        "difference": difference,
        "loss_difference": max(losses, default=0.0),
        "largest": moved,
        "steps": store.steps(),
    }


def main():
    group = ReplicaGroup.join(decode(os.environ), lambda: None)
    for name in OPTIMIZERS:
        found = compare(group, name)
        if group.index == 0:
            print(json.dumps(found), flush=True)
    group.gather_bytes(b"done")  # none goes before all are done
    os._exit(0)


if __name__ == "__main__":
    main()
