"""What of a model lies in the process that has built it, out of the reach of workers."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.model import keras_patches


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
