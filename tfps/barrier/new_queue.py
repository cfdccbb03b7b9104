"""Queues of a barrier, on a ps."""

import uuid
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def new_queue(
    capacity: int, dtypes: Sequence[tf.DType], shapes: Sequence[Any] | None = None
) -> tf.queue.QueueBase:
    """Creates a queue on the device at hand, which has nothing in it.

    `tf.queue.FIFOQueue` is named by how many things its process has made before, whatever name it
    is given, and a ps holds the queues of a chief that was killed: the next chief would go on with
    what they hold.

    Args:
        shapes: Of an element's tensors; None where they vary.
    """
    handle = tf.raw_ops.FIFOQueueV2(
        component_types=dtypes,
        shapes=[] if shapes is None else shapes,
        capacity=capacity,
        shared_name=f"barrier-{uuid.uuid4()}",
    )
    return tf.queue.QueueBase(dtypes, shapes, None, handle)
