"""Tables that begin with rows of files."""

import dataclasses

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import tfps
from tests.checkpoint.keyed import Keyed
from tfps.data import examples, tfrecord
from tfps.errors import UserError
from tfps.layers.dynamic_embedding import string_keys
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store import initializers
from tfps.store.parameter_store import ParameterStore

NAMES = ["users/table/embeddings", "urls/table/embeddings", "days/embeddings"]
RAW = [2**63 - 1, -(2**63), 5]
TEXTS = ["http://a", " b ", ""]
VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)


@dataclasses.dataclass(frozen=True)
class Given(Keyed):
    """The model of other tests, its tables begun with files."""

    user_rows: str = ""
    url_rows: str = ""
    day_rows: str = ""

    def build_model(self):
        user = keras.Input((), name="user", dtype="int64")
        url = keras.Input((), name="url", dtype="string")
        day = keras.Input((), name="day", dtype="int64")

        def begin(path):
            return tfps.RowsOfFiles(path, otherwise="ones") if path else "zeros"

        users = tfps.DynamicEmbedding(
            4, 50, name="users", embeddings_initializer=begin(self.user_rows)
        )
        urls = tfps.DynamicEmbedding(
            4, 50, "string", name="urls", embeddings_initializer=begin(self.url_rows)
        )
        days = keras.layers.Embedding(
            7, 4, name="days", embeddings_initializer=begin(self.day_rows)
        )
        joined = keras.layers.Concatenate()([users(user), urls(url), days(day)])
        return keras.Model([user, url, day], keras.layers.Dense(1, name="head")(joined))


def write_parquet(path, keys, vectors=VECTORS):
    pq.write_table(pa.table({"key": keys, "vector": [list(each) for each in vectors]}), path)
    return str(path)


def write_records(path, keys, vectors=VECTORS):
    dtype = "string" if isinstance(keys[0], str) else "int64"
    schema = tfps.Feature("key", dtype), tfps.Feature("vector", "float32", (4,))
    coded = [key.encode() if dtype == "string" else key for key in keys]
    records = [
        examples.encode({"key": key, "vector": vector}, schema)
        for key, vector in zip(coded, vectors, strict=True)
    ]
    path.write_bytes(b"".join(map(tfrecord.frame, records)))
    return str(path)


def store_of(parts=3, **rows):
    task = Given(**rows)
    model = StatelessModel(task, seed=5)
    return ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_parquet, write_records])
def test_rows_of_files_belong_to_their_keys_in_tables_of_both_kinds(write, tmp_path, monkeypatch):
    monkeypatch.setattr(initializers, "CHUNK_BYTES", 30)
    name = "x.parquet" if write is write_parquet else "x.tfrecord"
    for table, keys in (("users", RAW), ("urls", TEXTS), ("days", [6, 0, 3])):
        (tmp_path / table).mkdir()
        write(tmp_path / table / f"1{name}", keys[:1], VECTORS[:1])
        write(tmp_path / table / f"2{name}", keys[1:], VECTORS[1:])
    store = store_of(
        user_rows=str(tmp_path / "users"),
        url_rows=str(tmp_path / "urls" / "*"),
        day_rows=str(tmp_path / "days"),
    )
    users, urls, days = ([t.name for t in store.layout.tables].index(name) for name in NAMES)
    np.testing.assert_array_equal(store.read_rows(users, np.array(RAW)), VECTORS)
    hashed = string_keys(tf.constant(TEXTS)).numpy()
    np.testing.assert_array_equal(store.read_rows(urls, hashed), VECTORS)
    table = store.read_table(days)
    np.testing.assert_array_equal(table[[6, 0, 3]], VECTORS)
    assert (table[[1, 2, 4, 5]] == 1).all()
    [group] = store.keyed_groups
    assert {name: each["rows"] for name, each in group.counts().items()} == {
        NAMES[0]: 3,
        NAMES[1]: 3,
    }


@pytest.mark.quick("user_rows-keys3*", "user_rows-keys0*")
@pytest.mark.parametrize(
    ("table", "keys", "vectors", "why"),
    [
        ("user_rows", [5, 5], VECTORS[:2], r"x row 2: key 5 came before"),
        ("user_rows", ["5"], VECTORS[:1], r"x row 1: 'key' is '5', not int64"),
        ("user_rows", [5, None], VECTORS[:2], r"x row 2: 'key' is None, not int64"),
        ("user_rows", [5], [[1.0]], r"x row 1: 'vector' has 1 numbers instead of 4"),
        ("user_rows", [5], [[1.0, 2, 3, np.inf]], r"x row 1: 'vector' is not finite"),
        ("day_rows", [0, 7], VECTORS[:2], r"x row 2: key 7 is no id of the table, which are 0 to"),
        ("day_rows", [0, -1], VECTORS[:2], r"x row 2: key -1 is no id of the table"),
    ],
)
def test_a_bad_row_is_named_with_table_and_file(table, keys, vectors, why, tmp_path):
    path = write_parquet(tmp_path / "x", keys, vectors)
    with pytest.raises(UserError, match=rf"table '.*/embeddings': .*{why}"):
        store_of(1, **{table: path})


def test_a_bad_record_and_missing_files_are_named(tmp_path):
    path = write_records(tmp_path / "x", RAW)
    with pytest.raises(UserError, match=r"table 'urls/.*x: record 0 .*'key'"):
        store_of(1, url_rows=path)
    with pytest.raises(UserError, match=r"table 'days/.*/none: no file with .tfrecord in its name"):
        store_of(1, day_rows=str(tmp_path / "none"))
    content = bytearray((tmp_path / "x").read_bytes())
    content[-10] ^= 1
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=r"x: record 2 does not fit its checksum"):
        store_of(1, user_rows=path)
