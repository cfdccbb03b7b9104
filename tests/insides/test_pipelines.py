"""What tfps relies on in tf.data and in checkpoint files; docs/tensorflow_insides.md."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.checkpoint.checkpoint import _INDEX, _VALUES, CheckpointFile
from tfps.data.record_source import RecordSource, without_rewrites


def test_byte_offsets(tmp_path):
    """A reader begins at the byte it is given, inside a graph too."""
    path, offsets = str(tmp_path / "shard"), []
    with tf.io.TFRecordWriter(path) as writer:
        for k in range(10):
            offsets.append(16 * k + sum(range(1, k + 1)))  # each record has a frame of 16 bytes
            writer.write(b"x" * (k + 1))

    @tf.function(autograph=False)
    def second(first):
        source = RecordSource(path, offsets=offsets[::2], stride=2, end=10).tensors()
        iterator = iter(source.from_record(first))
        next(iterator)
        return next(iterator)

    for first in (0, 3, 6):
        assert len(second(tf.constant(first, tf.int64)).numpy()) == first + 2


def test_options_that_leave_a_pipeline_alone():
    options = without_rewrites(tf.data.Dataset.range(3)).options()
    assert options.experimental_optimization.apply_default_optimizations is False
    assert options.autotune.enabled is False


def test_an_ignored_error_uses_up_an_element():
    def fail_at_two(x):
        with tf.control_dependencies([tf.raw_ops.Assert(condition=x != 2, data=["two"])]):
            return tf.identity(x)

    dataset = tf.data.Dataset.range(5).map(fail_at_two)
    numbered = tf.data.Dataset.zip((tf.data.Dataset.range(5), dataset)).ignore_errors()
    assert [(int(n), int(x)) for n, x in numbered][:2] == [(0, 0), (1, 1)]
    assert [int(n) for n, _ in numbered] == NUMBERS


def test_a_pipeline_can_write_a_file_and_fail_at_it(tmp_path):
    @tf.function(autograph=False)
    def write(name):
        def one(content):
            with tf.control_dependencies([tf.io.write_file(name, content)]):
                return tf.constant(1)

        written = tf.data.Dataset.from_tensors("note").map(one).ignore_errors()
        return written.reduce(0, lambda total, one: total + one)

    (tmp_path / "file").touch()
    assert write(tf.constant(str(tmp_path / "note"))).numpy() == 1
    assert (tmp_path / "note").read_text() == "note"
    assert write(tf.constant(str(tmp_path / "file" / "note"))).numpy() == 0


def test_slices_of_a_checkpoint(tmp_path):
    """Several ps write slices of one tensor, one joins them, another number of ps reads others."""
    values = np.arange(20, dtype=np.float32).reshape(5, 4)
    prefixes = []
    for number, (first, end) in enumerate([(0, 2), (2, 5)]):
        prefixes.append(str(tmp_path / f"parameters.part-{number}"))
        tf.raw_ops.SaveV2(
            prefix=prefixes[-1],
            tensor_names=["rows"],
            shape_and_slices=[f"5 4 {first},{end - first}:-"],
            tensors=[values[first:end]],
        )
    prefix = str(tmp_path / "parameters")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)
    [read] = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=["rows"], shape_and_slices=["5 4 1,3:-"], dtypes=[tf.float32]
    )
    np.testing.assert_array_equal(read, values[1:4])
    np.testing.assert_array_equal(tf.train.load_variable(prefix, "rows"), values)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [
        "parameters.data-00000-of-00002",
        "parameters.data-00001-of-00002",
        "parameters.index",
    ]
    assert all(name == _INDEX or _VALUES.fullmatch(name) for name in names)
    assert len(CheckpointFile.all_in(str(tmp_path))) == 3


@pytest.mark.parametrize("name", ["parameters.data-00000-of-00001", "parameters.index"])
def test_whole_files_of_a_checkpoint(tmp_path, name):
    """Renamed into place when they are whole: no temporary name is left."""
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "parameters"),
        tensor_names=["v"],
        shape_and_slices=[""],
        tensors=[tf.zeros([3])],
    )
    assert (tmp_path / name).stat().st_size > 0


NUMBERS = [0, 1, 3, 4]
