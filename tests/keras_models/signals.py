"""Values of features, and what labels depend on, which is the same whatever is drawn."""

import zlib

import numpy as np

_LIKELY = 0.8  # how often an item is followed by its successor


def truth(name: str, *shape: int) -> np.ndarray:
    """Standard normal numbers, always the same for a name."""
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)


def ids(generator: np.random.Generator, count: int, vocabulary: int, *shape: int) -> np.ndarray:
    """Ids `[count, *shape]`, the low ones of which are seen more often."""
    return (vocabulary * generator.random((count, *shape)) ** 2).astype(np.int64)


def numbers(generator: np.random.Generator, count: int, *shape: int) -> np.ndarray:
    """Standard normal numbers `[count, *shape]`."""
    return generator.standard_normal((count, *shape), dtype=np.float32)


def noisy(generator: np.random.Generator, values: np.ndarray, deviation: float) -> np.ndarray:
    """Values with normal noise, float32."""
    return (values + deviation * generator.standard_normal(values.shape)).astype(np.float32)


def yes_or_no(generator: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    """1 as often as log-odds say, otherwise 0."""
    return (generator.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64)


def walks(generator: np.random.Generator, count: int, length: int, vocabulary: int) -> np.ndarray:
    """Sequences `[count, length]` of ids above 0, most of which follow from the one before."""
    successors = 1 + np.argsort(truth("successors", vocabulary - 1))
    walk = np.empty((count, length), np.int64)
    walk[:, 0] = 1 + ids(generator, count, vocabulary - 1)
    for place in range(1, length):
        others = 1 + ids(generator, count, vocabulary - 1)
        follows = generator.random(count) < _LIKELY
        walk[:, place] = np.where(follows, successors[walk[:, place - 1] - 1], others)
    return walk


def shortened(generator: np.random.Generator, sequences: np.ndarray, least: int) -> np.ndarray:
    """Sequences of at least so many ids, each filled up with zeros behind its end."""
    count, length = sequences.shape
    ends = generator.integers(least, length + 1, (count, 1))
    return np.where(np.arange(length) < ends, sequences, 0)
