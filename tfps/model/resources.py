"""What of a model lies in the process that has built it, out of the reach of workers."""

import re
from collections.abc import Iterable, Mapping, Sequence
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
            handle = id(_handle(child))
            if handle in wanted:
                found[handle] = f"{name} ({type(child).__name__}) of layer {layer.path!r}"
    if wanted - set(found):
        found[0] = "a variable or table that was made outside the model's layers"
    return tuple(found.values())


def users_of_others(model: keras.Model, function: Any, held: Sequence[Any]) -> list[str]:
    """Paths of the layers that use what the model does not hold, as far as the graph names them."""
    known = {id(_handle(each)) for each in held}
    paths = {layer.name: layer.path for layer in keras_patches.layers_of(model)}
    found = set()
    for outer, inner in function.graph.captures:
        if outer.dtype == tf.resource and id(outer) not in known:
            # A call's scope is the layer's name with a number, if that name was used before.
            scopes = [each for use in inner.consumers() for each in use.name.split("/")[:-1]]
            is_numbered = model.name not in scopes
            names = [re.sub(r"_\d+$", "", each) if is_numbered else each for each in scopes]
            found.update([paths[name] for name in names if name in paths][-1:])
    return sorted(found)


def _handle(each: Any) -> Any:
    """The tensor that stands for a resource in graphs."""
    return getattr(each, "resource_handle", getattr(each, "handle", None))


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
        else:
            waiting.extend(_held_by(each))
    return found


def _held_by(each: Any) -> Iterable[Any]:
    """What an object has that may be a resource, or hold one."""
    if isinstance(each, Mapping):
        return each.values()
    if isinstance(each, (list, tuple, set, frozenset)):
        return each
    if isinstance(each, keras.layers.Layer):
        # TensorFlow's children of a model for a SavedModel include a function that calls the model
        # with dense tensors, which is traced, and fails where a feature varies in length.
        return vars(each).values()
    if isinstance(each, tf.Module):
        # The children that a checkpoint has lack those in lists.
        return tf.train.TrackableView.children(each, "savedmodel", cache={}).values()
    return ()
