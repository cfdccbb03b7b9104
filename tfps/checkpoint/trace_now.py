"""Graphs that are made before anything is trained."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def trace_now(graph: Callable[..., Any], signature: Sequence[tf.TensorSpec] = ()) -> Any:
    """A function as a graph, made now.

    TensorFlow tells every task of a new graph and waits for each: in the middle of a run that would
    let one worker that hangs stop the chief. An operation that is called by itself is such a graph,
    too, when it is called for the first time.
    """
    return tf.function(graph, list(signature), autograph=False).get_concrete_function()
