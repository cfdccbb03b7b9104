"""Where a worker finds the copies of shards on its disk: what a closure asks in its graph.

A closure cannot call Python, so it and the worker's `ShardCache` talk through the file system. In
`CACHE_DIR/asked` the closure writes a note for every shard it reads, which asks for a copy and says
when it was used last; `CACHE_DIR/shards` holds the copies that are whole.
"""

import hashlib
import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.data.manifest import Manifest
from tfps.errors import UserError
from tfps.storage.paths import is_cloud

ASKED, SHARDS = "asked", "shards"


class CachedPaths:
    """The shards on gs:// of some datasets and where their copies are."""

    def __init__(self, cache_dir: str, datasets: Sequence[Manifest]) -> None:
        """Names the copies.

        Args:
            cache_dir: A local directory of the worker; empty for no copies.
        """
        if is_cloud(cache_dir) or any(sign in cache_dir for sign in "*?[\\"):
            raise UserError(
                f"--cache_dir={cache_dir} must be a directory on the worker's disk, its name "
                "without *, ?, [ and \\"
            )
        self._cache_dir = cache_dir
        self._shards = [
            (dataset.path_of(shard), shard.generation)
            for dataset in datasets
            for shard in dataset.shards
            if cache_dir and shard.generation
        ]

    def locate(self, path: tf.Tensor) -> tf.Tensor:
        """The path to read a shard from: that of its copy, if there is one, or its own.

        Leaves a note in either case. That it cannot be written, for example because the disk is
        full, is no error: the shard is then read from where it is.

        Args:
            path: Of the shard, scalar string.

        Returns:
            Scalar string.
        """
        if not self._shards:
            return path
        known = tf.constant([path for path, _ in self._shards])
        names = [copy_name(*shard) for shard in self._shards]
        notes = tf.constant([note(*shard) for shard in self._shards])
        is_it = tf.equal(known, path)
        place = tf.argmax(tf.cast(is_it, tf.int32))
        is_known = tf.reduce_any(is_it)
        asked = tf.constant([posixpath.join(self._cache_dir, ASKED, name) for name in names])
        copies = tf.constant([posixpath.join(self._cache_dir, SHARDS, name) for name in names])

        def known_path() -> tf.Tensor:
            with tf.control_dependencies([_written(asked[place], notes[place])]):
                found = tf.raw_ops.MatchingFiles(pattern=copies[place])
            return tf.cond(tf.size(found) > 0, lambda: copies[place], lambda: path)

        return tf.cond(is_known, known_path, lambda: path)


def copy_name(path: str, generation: int) -> str:
    """Name of the file that holds a copy of an object's generation."""
    return hashlib.sha256(note(path, generation).encode()).hexdigest()[:32]


def note(path: str, generation: int) -> str:
    """What a note says."""
    return f"{path}#{generation}"


def _written(name: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
    """Writes a file; what goes wrong is ignored, which only a dataset can do in a graph."""

    def write(content: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(name, content)]):
            return tf.constant(1)

    written = tf.data.Dataset.from_tensors(content).map(write).ignore_errors()
    return written.reduce(0, lambda total, one: total + one)
