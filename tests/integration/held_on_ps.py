"""A chief that holds 200 MB on a ps and dies; its place is in TF_CONFIG."""

import os

import tensorflow as tf

from tfps.coordinator import connector

EXPIRE_SECONDS = 4


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    connector.set_up(EXPIRE_SECONDS)
    tf.distribute.ParameterServerStrategy(resolver)
    with tf.device("/job:ps/replica:0/task:0/device:CPU:0"):
        held = tf.Variable(tf.ones([200, 250_000]))
    print(float(tf.reduce_sum(held[:, 0])), flush=True)
    os._exit(0)  # as if killed: nothing is tidied up


if __name__ == "__main__":
    main()
