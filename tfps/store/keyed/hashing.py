"""Keys as 64 random-looking bits, by which they are spread over the ps, and back."""

import hashlib

import numpy as np
import tensorflow as tf

from tfps.layers import id_check

_WORD = (1 << 64) - 1


def salt_of(table: str) -> int:
    """What tells equal keys of different tables apart, 64 bits."""
    return int.from_bytes(hashlib.blake2b(table.encode(), digest_size=8).digest(), "little")


def hashes_of(keys: tf.Tensor, salt: tf.Tensor) -> tf.Tensor:
    """The hash of each key: within a table, other keys have other hashes.

    Args:
        keys: Int64 of any shape.
        salt: Of the table of each, uint64 of a shape that can be broadcast to that of the keys.

    Returns:
        Int64 of the keys' shape.
    """
    salted = tf.bitwise.bitwise_xor(tf.bitcast(keys, tf.uint64), salt)
    return tf.bitcast(id_check.mix(salted), tf.int64)


def hashes_of_array(keys: np.ndarray, salt: int) -> np.ndarray:
    """As `hashes_of`, outside of a graph.

    Args:
        keys: Int64 of any shape.
    """
    mixed = (keys.view(np.uint64) ^ np.uint64(salt)) + np.uint64(id_check.GOLDEN)
    for shift, factor in id_check.ROUNDS:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(id_check.LAST_SHIFT))).view(np.int64)


def keys_of_array(hashes: np.ndarray, salt: int) -> np.ndarray:
    """The keys whose hashes these are.

    Args:
        hashes: Int64 of any shape.
    """
    bits = _unfolded(hashes.view(np.uint64), id_check.LAST_SHIFT)
    for shift, factor in reversed(id_check.ROUNDS):
        bits = _unfolded(bits * np.uint64(pow(factor, -1, 1 << 64)), shift)
    return ((bits - np.uint64(id_check.GOLDEN)) ^ np.uint64(salt & _WORD)).view(np.int64)


def _unfolded(bits: np.ndarray, shift: int) -> np.ndarray:
    """What `bits ^ (bits >> shift)` was made of."""
    found = bits
    for _ in range(64 // shift):
        found = bits ^ (found >> np.uint64(shift))
    return found
