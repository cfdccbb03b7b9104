"""Takes over the lookup tables of a model, so that closures find them on every worker.

A table of `tf.lookup` lies in the process that has made it; a closure on a worker would wait for it
for ever. So a closure brings the table's content along, and the first step that looks something up
fills the table on its worker.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps import byte_size
from tfps.errors import UserError
from tfps.model import keras_patches

_LOOKUPS = keras.layers.StringLookup, keras.layers.IntegerLookup
_BY_SETTINGS = keras.layers.Hashing, keras.layers.HashedCrossing, keras.layers.Discretization
_OF_ANY_LAYER = "name", "dtype", "trainable"
# Parts of a model, besides the variables that Keras knows, that a SavedModel needs.
_RESOURCES = (tf.Variable, tf.saved_model.Asset, tf.saved_model.experimental.TrackableResource)
_MOST_BYTES = 256 << 20  # a graph, with the table's content, must stay below 2 GiB
_Content = tuple[npt.NDArray[Any], npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Numbering:
    """What one layer numbers, and how."""

    # in the order of their numbers, masked and unknown ones included; none for computed numbers
    words: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The JSON-ready data in a checkpoint."""
        words = {"words": len(self.words), "sha256": _digest(self.words)} if self.words else {}
        return {**words, "settings": dict(self.settings)}

    def difference(self, theirs: Mapping[str, Any]) -> str:
        """What else the numbers meant according to a checkpoint, in words; empty for nothing."""
        count = theirs.get("words", 0)
        if count and _digest(self.words[:count]) != theirs["sha256"]:
            had = f"{count:,} words that it had, [UNK] included"
            return f"does not begin with the {had}, in their order"
        if theirs["settings"] != self.summary["settings"]:
            was, now = (json.dumps(each) for each in (theirs["settings"], self.settings))
            return f"was made with {was}, is with {now}"
        return ""


def numberings_of(model: keras.Model) -> dict[str, Numbering]:
    """How the layers of a model number things, by the layers' paths."""
    found = {}
    for layer in keras_patches.layers_of(model):
        path = layer.path or layer.name  # it has no path before it is built
        if isinstance(layer, _LOOKUPS):
            found[path] = Numbering(words=tuple(map(str, layer.get_vocabulary())))
        elif isinstance(layer, _BY_SETTINGS):
            config = json.loads(json.dumps(layer.get_config(), default=str))
            kept = {name: value for name, value in config.items() if name not in _OF_ANY_LAYER}
            found[path] = Numbering(settings=kept)
    return found


def renumbered(theirs: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Numbering]) -> list[str]:
    """The layers of both that number things otherwise, in words."""
    both = {path: each.difference(theirs[path]) for path, each in ours.items() if path in theirs}
    return [f"layer {path!r} {said}" for path, said in both.items() if said]


def _digest(words: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def holders_of(model: keras.Model, captured: Sequence[tf.Tensor]) -> tuple[str, ...]:
    """The layers that hold the resources that a graph has captured, and as what."""
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
    """Paths of the layers that use what the model does not hold, as far as the graph says."""
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
    """The tensor of a resource in graphs."""
    return getattr(each, "resource_handle", getattr(each, "handle", None))


def resources_of(model: keras.Model) -> list[Any]:
    """The lookup tables, files and TensorFlow variables of a model's layers, each once.

    Those in lists and dicts are found, too.
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
    """The parts of an object that may be a resource, or hold one."""
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


@contextlib.contextmanager
def lookup_tables_taken_over() -> Iterator[None]:
    """While a model is built: its `tf.lookup.StaticHashTable`s are taken over at the end."""
    with keras_patches.lookup_tables_noted() as made:
        yield
    for each in made:
        _take_over(each)


def _take_over(table: tf.lookup.StaticHashTable) -> None:
    # Read now: a process that becomes a chief loses the tables it made before.
    content = _content(table)
    if content is None:
        return
    serialized = [tf.io.serialize_tensor(each).numpy() for each in content]
    if (size := sum(map(len, serialized))) > _MOST_BYTES:
        raise UserError(
            f"build_model(): a lookup table of {len(content[0]):,} entries has "
            f"{byte_size.show(size)}, more than the {byte_size.show(_MOST_BYTES)} that can be "
            "sent to workers with a closure; look its keys up when the data is prepared, or "
            "use keras.layers.Hashing"
        )
    # Tables of one content are one on a worker.
    name = f"tfps_{hashlib.sha256(b''.join(serialized)).hexdigest()[:32]}"
    default, lookup = table.default_value.numpy(), table.lookup

    def find(keys: Any, **options: Any) -> Any:
        if tf.executing_eagerly():
            return lookup(keys, **options)
        return _each(keys, functools.partial(_found, name, content, default))

    keras_patches.replace_lookup(table, find)


def _content(table: tf.lookup.StaticHashTable) -> _Content | None:
    """Keys and values in the order of the keys; None of a table that never got any."""
    try:
        keys, values = (each.numpy() for each in table.export())
    except (tf.errors.FailedPreconditionError, tf.errors.AbortedError):
        return None
    order = np.argsort(keys)
    return keys[order], values[order]


def _found(name: str, content: _Content, default: Any, keys: tf.Tensor) -> tf.Tensor:
    """The values of dense keys, found where this graph runs."""
    known, values = map(tf.constant, content)
    if keys.dtype != known.dtype:
        raise TypeError(f"the keys of a lookup are {keys.dtype.name}, not {known.dtype.name}")
    with tf.device("/device:CPU:0"):
        handle = tf.raw_ops.HashTableV2(
            key_dtype=known.dtype, value_dtype=values.dtype, shared_name=name
        )
        # Of a table that has its content it only compares the number of entries.
        filled = tf.raw_ops.InitializeTableV2(table_handle=handle, keys=known, values=values)
        with tf.control_dependencies([filled]):
            found = tf.raw_ops.LookupTableFindV2(
                table_handle=handle, keys=keys, default_value=tf.constant(default, values.dtype)
            )
    return tf.ensure_shape(found, keys.shape)


def _each(keys: Any, find: Any) -> Any:
    """Looks up keys, dense, ragged or sparse."""
    if isinstance(keys, tf.RaggedTensor):
        return keys.with_flat_values(find(keys.flat_values))
    if isinstance(keys, tf.SparseTensor):
        return keys.with_values(find(keys.values))
    return find(tf.convert_to_tensor(keys))
