"""What the TensorFlow peers share: servers, strategy, input and loss."""

import argparse
import os
import pathlib
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from benchmarks import models

SHUFFLE_BUFFER = 8192


def library(name: str) -> Any:
    """The Keras to use: `keras` or `tf_keras`."""
    if name == "keras":
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import keras

        return keras
    import tf_keras

    return tf_keras


def optimizer(keras: Any, flags: argparse.Namespace) -> Any:
    """The optimizer of all parameters."""
    return models.optimizer(keras, flags.optimizer, models.LEARNING_RATES[flags.model])


def serve(flags: argparse.Namespace) -> None:
    """Serves as a worker or ps until the chief ends."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=flags.intra_op_threads,
        inter_op_parallelism_threads=flags.inter_op_threads,
    )
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        config=config,
    ).join()


def set_threads(flags: argparse.Namespace) -> None:
    """Gives this process its threads; before TensorFlow does anything."""
    tf.config.threading.set_intra_op_parallelism_threads(flags.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.inter_op_threads)


def parameter_server_strategy(cluster: dict[str, list[str]]) -> Any:
    """The strategy of a chief that is this process."""
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
    )


def dataset(flags: argparse.Namespace) -> tf.data.Dataset:
    """Every shard, over and over, in an order of the worker's own: (features, label `[n, 1]`)."""
    schema = {
        name: tf.io.FixedLenFeature(shape, tf.as_dtype(dtype))
        for name, (shape, dtype) in models.FEATURES[flags.model].items()
    }
    schema["label"] = tf.io.FixedLenFeature((1,), tf.int64)

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(serialized, schema)
        return features, features.pop("label")

    files = tf.data.Dataset.list_files(str(pathlib.Path(flags.data, "*.tfrecord")), shuffle=True)
    records = files.repeat().interleave(
        lambda file: tf.data.TFRecordDataset(file, buffer_size=8 << 20),
        cycle_length=4,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    batches = records.shuffle(SHUFFLE_BUFFER).batch(flags.batch, drop_remainder=True)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
