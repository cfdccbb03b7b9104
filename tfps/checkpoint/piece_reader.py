"""Reads parameters from the files of a checkpoint."""

import concurrent.futures
import posixpath
import re
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.damage import Damage
from tfps.checkpoint.part_file import PREFIX
from tfps.errors import UserError
from tfps.failures import first_line
from tfps.store.piece import Piece

_SHARD = re.compile(r" shard (\d+) ")


def read(pieces: Sequence[Piece], directory: str) -> None:
    """Overwrites all pieces: every ps at the same time, one chunk after the other.

    Not as one graph, in which a third of the chunks were seen to be held at once.

    Raises:
        Damage: If TensorFlow finds that a file is not what was written. No ps is reading any more.
        UserError: If a ps does not see the files.
        tf.errors.OpError: If the storage does not answer, or a ps is lost.
    """
    prefix = posixpath.join(directory, PREFIX)
    devices = list(dict.fromkeys(piece.device for piece in pieces))
    pool = concurrent.futures.ThreadPoolExecutor(len(devices), "restore")
    try:
        reads = [
            pool.submit(_read_on, device, [p for p in pieces if p.device == device], prefix)
            for device in devices
        ]
        # All, before anything else is written to the pieces.
        concurrent.futures.wait(reads)
        for done in reads:
            done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_on(device: str, pieces: Sequence[Piece], prefix: str) -> None:
    try:
        for piece in pieces:
            for first, count in piece.chunks():
                with tf.device(device):
                    (value,) = tf.raw_ops.RestoreV2(
                        prefix=prefix,
                        tensor_names=[piece.name],
                        shape_and_slices=[piece.slice_spec(first, count)],
                        dtypes=[piece.variable.dtype],
                    )
                    piece.write(first, value)
            with tf.device(device):
                tf.raw_ops.DisableCopyOnRead(resource=piece.variable.handle)
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise Damage(_altered(error, prefix)) from None
    except tf.errors.NotFoundError:  # The chief has just seen it.
        raise UserError(
            f"{prefix}.* is there for the chief, but not for {device}; every ps must see the files "
            "in --job_dir"
        ) from None


def _altered(error: tf.errors.OpError, prefix: str) -> str:
    """Which file TensorFlow finds altered, and what it says."""
    text = first_line(error)
    found = _SHARD.search(text)
    names = tf.io.gfile.glob(f"{prefix}.data-{int(found[1]):05d}-of-*") if found else []
    file = posixpath.basename(names[0]) if names else f"a file of {PREFIX}.*"
    return f"{file} was altered ({text})"
