"""Datasets of arrays, data frames and streams of batches, as Keras's `fit` takes them."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tfps
from tfps.data import examples
from tfps.data import manifest as manifests
from tfps.errors import UserError
from tfps.storage import files


def read(written, features, labels=()):
    """All records of a dataset, shard by shard, as one batch."""
    files = [written.path_of(shard) for shard in written.shards]
    records = [record.numpy() for record in tf.data.TFRecordDataset(files)]
    return examples.parse(tf.constant(records), features, labels)


def of(schemas):
    """The features that a manifest describes."""
    return [tfps.Feature(each["name"], each["dtype"], tuple(each["shape"])) for each in schemas]


COLUMNS = {
    "flag": np.array([True, False, True]),
    "small": np.array([1, 2, 3], np.uint8),
    "half": np.array([[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]], np.float16),
    "text": np.array(["a", "", "ü"]),
    "image": np.array([b"\x00\xff\x00", b"png\x00", b""], object),
    "files": [b"\x00\xff\x00", b"png\x00", b""],
    "tags": [[1, 2], [], [3]],
    "words": [["x"], ["y", "z"], []],
}


def test_columns_of_all_kinds_become_features(tmp_path):
    written = tfps.write_dataset(str(tmp_path), COLUMNS, np.array([0, 1, 0]), [1.0, 2.0, 0.5])
    features, labels = of(written.features), of(written.labels)
    kinds = {feature.name: (feature.dtype, feature.shape) for feature in [*features, *labels]}
    assert kinds == {
        "flag": ("int64", ()),
        "small": ("int64", ()),
        "half": ("float32", (2,)),
        "text": ("string", ()),
        "image": ("string", ()),
        "files": ("string", ()),
        "tags": ("int64", (None,)),
        "words": ("string", (None,)),
        "label": ("int64", ()),
        "sample_weight": ("float32", ()),
    }
    found, truth = read(written, features, labels)
    assert found["flag"].numpy().tolist() == [1, 0, 1]
    assert found["half"].numpy().tolist() == COLUMNS["half"].tolist()
    assert found["text"].numpy().tolist() == [b"a", b"", "ü".encode()]
    assert found["image"].numpy().tolist() == COLUMNS["image"].tolist()
    assert found["files"].numpy().tolist() == COLUMNS["files"]
    assert found["tags"].to_list() == COLUMNS["tags"]
    assert found["words"].to_list() == [[b"x"], [b"y", b"z"], []]
    assert truth["sample_weight"].numpy().tolist() == [1.0, 2.0, 0.5]


def test_a_data_frame_is_its_columns(tmp_path):
    frame = pd.DataFrame({"age": [20, 30], "name": ["a", "b"], "seen": [[1], [2, 3]]})
    written = tfps.write_dataset(str(tmp_path), frame, pd.Series([0.5, 1.5]))
    found, truth = read(written, of(written.features), of(written.labels))
    assert found["age"].numpy().tolist() == [20, 30]
    assert found["seen"].to_list() == [[1], [2, 3]]
    assert truth["label"].numpy().tolist() == [0.5, 1.5]


def test_records_are_dealt_out_to_the_shards(tmp_path):
    x = np.arange(10_001)
    written = tfps.write_dataset(str(tmp_path), {"n": x}, shards=3, name="dealt")
    assert [shard.records for shard in written.shards] == [3334, 3334, 3333]
    found, _ = read(written, of(written.features))
    assert found["n"].numpy().tolist() == [*x[::3], *x[1::3], *x[2::3]]
    assert manifests.read(str(tmp_path)).records == 10_001


class Batches(keras.utils.PyDataset):
    """Five records in three batches."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"n": np.arange(2 * index, min(5, 2 * index + 2))}, np.full(2 - index // 2, index)


def generated():
    yield from (Batches()[index] for index in range(3))


STREAMS = {
    "generator": generated,
    "iterator": lambda: generated(),
    "PyDataset": Batches(workers=0),
    "tf.data": lambda: tf.data.Dataset.from_tensor_slices(
        ({"n": tf.range(5)}, tf.constant([0, 0, 1, 1, 2]))
    ).batch(2),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_batches_are_written_one_after_the_other(tmp_path, name):
    written = tfps.write_dataset(str(tmp_path), STREAMS[name])
    found, truth = read(written, of(written.features), of(written.labels))
    assert found["n"].numpy().tolist() == [0, 1, 2, 3, 4]
    assert truth["label"].numpy().tolist() == [0, 0, 1, 1, 2]


def test_what_is_said_of_columns_counts(tmp_path):
    said = [tfps.Feature("id", "int64", (), 10), tfps.Feature("pair", "float32", (2,))]
    columns = {"id": np.array([9]), "pair": [np.array([1, 2])]}
    label = tfps.Feature("bought", "float32")
    written = tfps.write_dataset(str(tmp_path), columns, np.array([1]), features=said, label=label)
    assert written.features == [feature.schema() for feature in said]
    found, truth = read(written, said, [label])
    assert found["pair"].numpy().tolist() == [[1.0, 2.0]]
    assert truth["bought"].numpy().tolist() == [1.0]


ID = tfps.Feature("id", "int64", (), 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": {"a": [1, 2], "b": [1]}}, "columns differ in their number of records: 'a' 2, 'b' 1"),
        (
            {"x": {"id": [1, 10]}, "features": [ID]},
            r"column 'id', record 1: 10 lies outside the voc",
        ),
        ({"x": {"a": [1]}, "features": [ID]}, "there is no column 'id'; the columns are a"),
        ({"x": {"a": []}}, "there is no record"),
        ({"x": {}}, "x holds no column"),
        ({"x": iter([])}, "there is no record"),
        ({"x": iter([{"a": [1]}, {"b": [1]}])}, "from record 1 on the columns are b, before they"),
        ({"x": iter([{"a": [1]}]), "y": [1]}, "y= and sample_weight= go with arrays"),
        ({"x": iter([(1, 2, 3, 4)])}, "a batch has 4 parts"),
        ({"x": tf.data.Dataset.range(3)}, "column 'x': 0 is one value, .* make batches"),
        ({"x": tf.data.Dataset.range(3).batch(2).repeat()}, r"the batches never end; .*take\(n\)"),
        (
            {"x": (np.arange(2), np.arange(2))},
            "a tuple of 2 arrays has no names for them; give a d",
        ),
        ({"x": iter([{"a": [1]}, {"a": [2.5]}])}, "'a', record 1: 2.5 is a float, but the feature"),
        ({"x": [1], "shuffle": "all"}, "shuffle='all' must be one of 'none', 'whole'"),
        ({"x": [1], "validation_split": 20}, "validation_split=20 is no share"),
        ({"x": [1], "validation_split": 0.5}, "and validation_directory= go together"),
        ({"x": [1], "validation_directory": "d"}, "and validation_directory= go together"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, arguments, message):
    with pytest.raises(UserError, match=message):
        tfps.write_dataset(str(tmp_path), **arguments)
    assert not list(tmp_path.glob("*.tfrecord"))


def test_the_last_share_is_left_for_evaluation_as_fit_leaves_it(tmp_path):
    x = {"n": np.arange(10), "tags": [[k] * (k % 3) for k in range(10)]}
    train, eval_data = str(tmp_path / "train"), str(tmp_path / "eval")
    written = tfps.write_dataset(
        train, x, np.arange(10) / 2, validation_split=0.25, validation_directory=eval_data
    )
    left = manifests.read(eval_data)
    assert (written.records, left.records) == (7, 3)
    assert (written.features, written.labels) == (left.features, left.labels)
    features, labels = of(written.features), of(written.labels)
    found, truth = read(written, features, labels)
    assert found["n"].numpy().tolist() == list(range(7))
    found, truth = read(left, features, labels)
    assert found["tags"].to_list() == x["tags"][7:]
    assert truth["label"].numpy().tolist() == [3.5, 4.0, 4.5]


def test_a_shuffle_keeps_records_whole_and_depends_on_the_seed(tmp_path):
    x, y = {"n": np.arange(1001), "tags": [[k] * (k % 3) for k in range(1001)]}, np.arange(1001)

    def written(name, seed, **more):
        directory = str(tmp_path / name)
        return tfps.write_dataset(directory, x, y, shards=3, shuffle="whole", seed=seed, **more)

    first, same, other = written("a", 1), written("b", 1), written("c", 2)
    assert [shard.records for shard in first.shards] == [334, 334, 333]
    assert first.shards == same.shards
    assert first.shards != other.shards
    found, truth = read(first, of(first.features), of(first.labels))
    numbers = found["n"].numpy().tolist()
    assert sorted(numbers) == x["n"].tolist() != numbers
    assert truth["label"].numpy().tolist() == numbers
    assert found["tags"].to_list() == [[k] * (k % 3) for k in numbers]
    for shard in first.shards:
        assert files.checksum_of_file(first.path_of(shard)) == shard.crc32c
    split = written("d", 1, validation_split=0.5, validation_directory=str(tmp_path / "e"))
    numbers = read(split, of(split.features))[0]["n"].numpy()
    assert sorted(numbers) == list(range(500))
    left = manifests.read(str(tmp_path / "e"))
    assert read(left, of(left.features))[0]["n"].numpy().min() == 500


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (iter([{"a": [1]}]), "validation_split= goes with arrays and data frames, as in fit"),
        ([1], r"validation_split=0\.5 of 1 records leaves none for training"),
    ],
)
def test_a_share_that_cannot_be_left_is_refused(tmp_path, x, message):
    split = {"validation_split": 0.5, "validation_directory": str(tmp_path / "eval")}
    with pytest.raises(UserError, match=message):
        tfps.write_dataset(str(tmp_path / "train"), x, **split)
    with pytest.raises(UserError, match="is to hold the training data"):
        tfps.write_dataset(split["validation_directory"], x, **split)
    assert not list(tmp_path.rglob("*.tfrecord"))


def test_columns_are_counted_and_odd_ones_said(tmp_path, caplog):
    columns = {"x": [1.0, np.nan, np.inf], "tags": [[1], [], [2]], "none": [[], [], []]}
    columns["none"] = tf.ragged.constant(columns["none"], tf.int64)
    written = tfps.write_dataset(str(tmp_path), columns, [0, 1, 0])
    assert written == manifests.read(str(tmp_path))
    assert written.counts["x"].not_finite == 2
    assert [written.counts[name].empty for name in ("x", "tags", "none")] == [0, 1, 3]
    assert [record.message for record in caplog.records] == [
        f"write_dataset(): {tmp_path}: 'x': 2 of 3 (66.67%) records hold a NaN or an infinity",
        f"write_dataset(): {tmp_path}: 'none': 3 of 3 (100.00%) records have an empty list",
    ]


@pytest.mark.parametrize(
    ("labels", "label", "name"),
    [
        (pd.Series([0, 1], name="sold"), None, "sold"),
        (pd.Series([0, 1]), None, "label"),
        (pd.Series([0, 1], name="sold"), tfps.Feature("bought", "int64"), "bought"),
    ],
)
def test_a_series_keeps_its_name(tmp_path, labels, label, name):
    written = tfps.write_dataset(str(tmp_path), {"age": [1, 2]}, labels, label=label)
    assert [each["name"] for each in written.labels] == [name]
