"""Takes over the lookup tables of a model, so that closures find them on every worker.

A table of `tf.lookup` lies in the process that has made it, and a closure that captures one cannot
reach it from a worker: it would wait for ever. So a closure brings the table's content along, and
the first step that looks something up fills the table on its worker.
"""

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps import byte_size
from tfps.errors import UserError
from tfps.model import keras_patches

_MOST_BYTES = 256 << 20  # a graph, of which a table's content is a part, must stay below 2 GiB
_Content = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class LookupTables:
    """The `tf.lookup.StaticHashTable`s of one model, those of Keras's lookup layers among them."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    @contextlib.contextmanager
    def taken_over(self) -> Iterator[None]:
        """While a model is built: tables that are made are taken over at the end."""
        with keras_patches.lookup_tables_noted() as made:
            yield
        for each in made:
            self._take_over(each)

    def _take_over(self, table: tf.lookup.StaticHashTable) -> None:
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
        self._names.append(name)


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
    """Looks keys up, be they dense, ragged or sparse."""
    if isinstance(keys, tf.RaggedTensor):
        return keys.with_flat_values(find(keys.flat_values))
    if isinstance(keys, tf.SparseTensor):
        return keys.with_values(find(keys.values))
    return find(tf.convert_to_tensor(keys))
