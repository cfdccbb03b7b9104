"""A task of a small cluster, by TF_CONFIG: a server, or a chief that puts into queues and dies."""

import os

import tensorflow as tf

from tfps.barrier.messages import new_queue


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        server = tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, 0)
        print("serves", flush=True)
        server.join()
    tf.distribute.ParameterServerStrategy(resolver)
    with tf.device("/job:ps/replica:0/task:0/device:CPU:0"):
        queues = [tf.queue.FIFOQueue(9, [tf.int64], shapes=[[]]), new_queue(9, [tf.int64], [[]])]
    print("found", *(int(queue.size()) for queue in queues), flush=True)
    for queue in queues:
        queue.enqueue(tf.constant(1, tf.int64))
    os._exit(0)  # as if killed: nothing is tidied up


if __name__ == "__main__":
    main()
