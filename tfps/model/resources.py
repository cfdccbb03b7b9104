"""What of a model lies in the process that has built it, out of the reach of workers."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.model import keras_patches

# What a model may hold beside the variables that Keras knows, and a SavedModel of it needs.
_RESOURCES = (tf.Variable, tf.saved_model.Asset, tf.saved_model.experimental.TrackableResource)


def holders_of(model: keras.Model, captured: Sequence[tf.Tensor]) -> tuple[str, ...]:
    """Which layers hold the resources that a graph has captured, and as what."""
    wanted = {id(handle) for handle in captured}
    found = {}
    for layer in keras_patches.layers_of(model):
        for name, child in tf.train.TrackableView.children(layer).items():
            handle = id(getattr(child, "resource_handle", getattr(child, "handle", None)))
            if handle in wanted:
                found[handle] = f"{name} ({type(child).__name__}) of layer {layer.path!r}"
    if wanted - set(found):
        found[0] = "a variable or table that was made outside the model's layers"
    return tuple(found.values())


def resources_of(model: keras.Model) -> list[Any]:
    """The lookup tables, files and TensorFlow variables that a model's layers hold, each once.

    Args:
        model: The model; what its layers have in lists and dicts is found too.
    """
    found: list[Any] = []
    seen: dict[int, Any] = {}  # the objects too, so that no other one gets the id of one
    waiting: list[Any] = keras_patches.layers_of(model)
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, _RESOURCES):
            found.append(each)
            continue
        # The children that a checkpoint has lack those in lists.
        children = tf.train.TrackableView.children(each, "savedmodel", cache={})
        waiting.extend(children.values())
    return found
