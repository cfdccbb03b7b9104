"""Texts and kinds of TensorFlow's errors that tfps goes by; docs/tensorflow_insides.md."""

import errno
import os
import re
import socket

import pytest
import tensorflow as tf

from tests.corruption import flip_bit
from tfps.checkpoint.reader import _SHARD
from tfps.cluster.failures import first_line
from tfps.data import examples
from tfps.data.feature import Feature
from tfps.layers.id_check import fail_unless

FEATURES = [Feature("x", "int64", vocabulary=5), Feature("y", "float32", (2,))]


def raised(kind, function, *args):
    with pytest.raises(kind) as caught:
        function(*args)
    return caught.value


def test_text_around_an_error_in_a_graph():
    @tf.function(autograph=False)
    def outer(x):
        inner = tf.function(lambda x: tf.reshape(x, [2, 2]), autograph=False)
        return inner(x)

    error = raised(
        tf.errors.InvalidArgumentError,
        outer.get_concrete_function(tf.TensorSpec([None])),
        tf.zeros([3]),
    )
    assert "Detected at node" in str(error) or "[[" in str(error)
    assert re.fullmatch(r"Input to reshape is a tensor with 3 values, .* has 4", first_line(error))


def test_text_of_a_refusal():
    @tf.function(autograph=False)
    def refuse(x):
        return x + fail_unless(x < 5, lambda: tf.constant('too large, and "quoted"'))

    error = raised(tf.errors.InvalidArgumentError, refuse, tf.constant(7, tf.int64))
    assert "StringToNumberOp could not correctly convert string: " in str(error)
    assert first_line(error) == 'too large, and "quoted"'


def test_text_of_an_assertion():
    @tf.function(autograph=False)
    def check(x):
        tf.raw_ops.Assert(condition=x, data=["an id"])

    error = raised(tf.errors.InvalidArgumentError, check, tf.constant(False))
    assert "assertion failed: [an id]" in str(error)
    assert first_line(error) == "an id"


def test_text_of_an_error_in_a_pipeline():
    dataset = tf.data.Dataset.range(3).batch(3).map(lambda x: tf.reshape(x, [2, 2]))

    @tf.function(autograph=False)
    def read():
        return next(iter(dataset))

    error = raised(tf.errors.InvalidArgumentError, read)
    assert "Error in user-defined function" in str(error)
    assert first_line(error).startswith("Input to reshape is a tensor with 3 values")


@pytest.mark.parametrize("record", [b"", b"no proto", "other"])
def test_text_of_a_parse_error(record):
    """One that a schema other than the records' ends in."""
    if record == "other":
        example = tf.train.Example()
        example.features.feature["x"].float_list.value.append(1.0)
        record = example.SerializeToString()

    @tf.function(autograph=False)
    def parse(serialized):
        return examples.parse(serialized, FEATURES)[0]["x"]

    error = raised(tf.errors.InvalidArgumentError, parse, tf.constant([record]))
    assert re.search(r"Feature: |Key: |parse|Example", first_line(error))


def test_kinds_of_errors_of_a_damaged_file(tmp_path):
    """Altered is DataLoss; cut off within a record too."""
    path = tmp_path / "shard"
    for damage in ("altered", "cut off"):
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(b"record" * 10)
        if damage == "altered":
            flip_bit(path, 20)
        else:
            path.write_bytes(path.read_bytes()[:-5])
        dataset = iter(tf.data.TFRecordDataset(str(path)))
        assert raised(tf.errors.DataLossError, dataset.get_next)
    missing = iter(tf.data.TFRecordDataset(str(tmp_path / "missing")))
    assert raised(tf.errors.NotFoundError, missing.get_next)


def test_text_of_an_altered_slice(tmp_path):
    prefix = str(tmp_path / "parameters")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=["v"], shape_and_slices=[""], tensors=[tf.zeros([100])]
    )
    flip_bit(tmp_path / "parameters.data-00000-of-00001", 50)

    def read():
        tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=["v"], shape_and_slices=[""], dtypes=[tf.float32]
        )

    found = _SHARD.search(first_line(raised(tf.errors.DataLossError, read)))
    assert found
    assert found[1] == "0"


def test_error_of_a_taken_port():
    with socket.create_server(("", 0)) as held:
        spec = tf.train.ClusterSpec({"ps": [f"localhost:{held.getsockname()[1]}"]})
        start = lambda: tf.distribute.Server(spec, job_name="ps", task_index=0)  # noqa: E731
        assert raised(tf.errors.UnknownError, start)


def test_error_of_a_late_group():
    """Replicas meet before a process computes anything; here is one that has."""
    tf.constant(1)
    addresses = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(addresses), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    assert raised(RuntimeError, tf.distribute.MultiWorkerMirroredStrategy, resolver)


def test_text_of_an_error_of_local_files():
    with (
        pytest.raises(tf.errors.OpError) as caught,
        tf.io.gfile.GFile("/proc/self/mem", "rb") as file,
    ):
        file.read(1)  # nothing is mapped there
    assert caught.value.message.endswith(f"; {os.strerror(errno.EIO)}")
