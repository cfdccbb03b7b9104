"""Rows of predictions as records, read back by TensorFlow."""

import numpy as np
import tensorflow as tf

from trainer.datasets.predictions_file import TfrecordRows


def test_records_hold_the_columns(tmp_path):
    path = tmp_path / "rows.tfrecord"
    draw = np.random.default_rng(0)
    columns = {
        "prediction": draw.random([300, 1], np.float32),
        "vector": draw.normal(size=[300, 3]).astype("f4"),
        "label": draw.integers(-3, 1 << 40, 300),
        "flag": draw.random(300) < 0.5,
        "name": np.array([b"user-%d" % k if k % 7 else b"" for k in range(300)], object),
    }
    rows = TfrecordRows(str(path))
    for first, end in ((0, 1), (1, 300)):
        rows.write({name: values[first:end] for name, values in columns.items()})
    rows.close()
    assert rows.written_bytes == path.stat().st_size
    dtypes = {"prediction": tf.float32, "vector": tf.float32, "name": tf.string}
    wanted = {
        name: tf.io.FixedLenFeature(values.shape[1:], dtypes.get(name, tf.int64))
        for name, values in columns.items()
    }
    [batch] = tf.data.TFRecordDataset(str(path)).batch(300)
    found = tf.io.parse_example(batch, wanted)
    for name, values in columns.items():
        np.testing.assert_array_equal(found[name].numpy(), values)
