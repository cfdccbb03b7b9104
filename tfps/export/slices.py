"""Puts the rows of tables that nobody can hold whole into a SavedModel."""

import posixpath
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.errors import RunError, UserError
from tfps.export.names import VARIABLES_NAME, variables_prefix
from tfps.export.parameters import GroupInSlices, Parameters
from tfps.export.sliced_variables import WrittenRun
from tfps.storage import files


def write_slices(
    directory: str, groups: Mapping[int, GroupInSlices], parameters: Parameters
) -> dict[int, list[WrittenRun]]:
    """Writes rows into the variables of a SavedModel, which has them without any.

    TensorFlow's format knows tensors in slices: each is written by whoever holds it, and reading
    the tensor joins them.
    """
    prefix = variables_prefix(directory)
    runs = {index: parameters.write_group(index, group, prefix) for index, group in groups.items()}
    written = [run.prefix for some in runs.values() for run in some]
    _join(prefix, {name for group in groups.values() for name in group.names}, written)
    return runs


def _join(prefix: str, in_slices: set[str], written: Sequence[str]) -> None:
    """Puts slices in the place of tensors without rows."""
    dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
    if missing := sorted(in_slices - dtypes.keys()):
        raise RunError(
            f"TensorFlow {tf.__version__} names what a SavedModel holds otherwise than "
            f"{missing[0]!r}: tables in slices cannot be exported; use TensorFlow 2.21"
        )
    kept = sorted(dtypes.keys() - in_slices)
    whole = [""] * len(kept)
    others = f"{prefix}.others"
    values = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=kept,
        shape_and_slices=whole,
        dtypes=[dtypes[name] for name in kept],
    )
    tf.raw_ops.SaveV2(prefix=others, tensor_names=kept, shape_and_slices=whole, tensors=values)
    directory = posixpath.dirname(prefix)
    for name in files.names(directory):
        if name.startswith((f"{VARIABLES_NAME}.index", f"{VARIABLES_NAME}.data-")):
            files.remove(posixpath.join(directory, name))
    try:
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[others, *written], destination_prefix=prefix, delete_old_dirs=False
        )
    except tf.errors.OpError:
        if all(files.exists(f"{each}.index") for each in written):
            raise
        raise UserError(
            f"{directory} is not there for every ps, or another directory for one of them; name a "
            "place for the exported model that chief and ps see alike"
        ) from None
