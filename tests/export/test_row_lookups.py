"""Rows of an exported model's tables are those that the model itself looks up."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from configs.smoke import Smoke
from tests.export.test_slices import BATCH
from tests.training_fixtures import Trainer, dataset, reused
from tfps.errors import UserError
from tfps.export.exported_files import SCHEMA_FILE
from tfps.export.loaded_model import ExportedModel
from tfps.export.sliced_variables import RowEncoding
from tfps.store import partitioned_variable

FORMS = {
    "whole": {},
    "slices": {"whole_bytes": 0},
    "bfloat16": {"encoding": RowEncoding("bfloat16")},
    "int8": {"encoding": RowEncoding("int8")},
}
NAMES = {
    "wide/embeddings": "wide",
    "other/table/embeddings": "other",
    "narrow/embeddings": "narrow",
}


@dataclasses.dataclass(frozen=True)
class Shown(Smoke):
    """Two tables of one width and one of another, whose rows are predictions too."""

    vocabulary: int = 3000

    def build_model(self):
        numbers = keras.Input([4], name="numbers")
        token = keras.Input([], name="token", dtype="int64")
        wide = keras.layers.Embedding(self.vocabulary, 8, name="wide")(token)
        other = tfps.Embedding(self.vocabulary, 8, name="other")(token)
        narrow = keras.layers.Embedding(self.vocabulary, 3, name="narrow")(token)
        joined = keras.layers.Concatenate()([numbers, wide, other, narrow])
        logits = keras.layers.Dense(1)(joined)
        return keras.Model(
            {"numbers": numbers, "token": token},
            {"logits": logits, "wide": wide, "other": other, "narrow": narrow},
        )

    def compute_loss(self, features, labels, outputs):
        return self.loss()(labels, outputs["logits"])

    def predictions(self, outputs):
        return outputs


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


class Exported(dict):
    """The model by the form in which it is exported: its rows lie on three ps, in some chunks."""

    def __init__(self, manifest, directory):
        super().__init__()
        self._trainer, self._directory = Trainer(manifest, Shown(), parts=3), directory
        self._trainer.coordinator.train(self._trainer.queue(), lambda: False, lambda progress: None)

    def __missing__(self, name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partitioned_variable, "CHUNK_BYTES", 20_000)
            self._trainer.export(self._directory / name, **FORMS[name])
        self[name] = model = ExportedModel.load(str(self._directory / name))
        return model


@pytest.fixture(scope="module")
def exported(manifest, tmp_path_factory):
    return Exported(manifest, tmp_path_factory.mktemp("export"))


@pytest.mark.quick("slices", "int8")
@pytest.mark.parametrize("form", FORMS)
def test_they_are_what_the_model_itself_looks_up(exported, form):
    model = exported[form]
    ids = np.array([2999, 0, 7, 7, 1024, 1023, *range(14)])
    found = model.predict({**BATCH, "token": ids})
    assert {table.name for table in model.tables} == set(NAMES)
    for table in model.tables:
        assert (table.rows, table.dim) == (3000, 3 if table.name == "narrow/embeddings" else 8)
        rows = model.rows(table.name, ids)
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows, found[NAMES[table.name]])
        np.testing.assert_array_equal(
            model.rows(table.name, ids.reshape(4, 5)), rows.reshape(4, 5, -1)
        )
        assert model.rows(table.name, []).shape == (0, table.dim)


@pytest.mark.slow
def test_all_rows_of_a_table_can_be_asked_for_at_once(exported):
    whole = exported["whole"].rows("wide/embeddings", np.arange(3000))
    np.testing.assert_array_equal(exported["slices"].rows("wide/embeddings", range(3000)), whole)
    assert 0 < np.abs(exported["int8"].rows("wide/embeddings", range(3000)) - whole).max() < 0.01
    assert len(np.unique(whole, axis=0)) == 3000


@pytest.mark.parametrize(
    ("table", "ids", "message"),
    [
        ("wide", [0], "no table 'wide'; the model has .*wide/embeddings"),
        ("wide/embeddings", [1, 3000], "id 3000 is outside table 'wide/embeddings', .* 0 to 2,999"),
        ("wide/embeddings", [[-1]], "id -1 is outside"),
        ("wide/embeddings", [0.5], "whole numbers, not float64"),
    ],
)
def test_what_is_not_there_is_refused_by_name(exported, table, ids, message):
    with pytest.raises(UserError, match=message):
        exported["slices"].rows(table, ids)


@pytest.mark.slow
def test_a_small_table_that_was_trained_as_dense_parameters_has_rows_too(manifest, tmp_path):
    trainer = reused(manifest)
    assert trainer.model.tables
    dense = Trainer(manifest, Smoke(), dense_table_bytes=1 << 20)
    assert not dense.model.tables
    for name, each in (("ps", trainer), ("dense", dense)):
        each.export(tmp_path / name)
    of_ps, of_dense = (ExportedModel.load(str(tmp_path / name)) for name in ("ps", "dense"))
    assert of_ps.tables == of_dense.tables
    [table] = of_dense.tables
    path = next(v.path for v in dense.model.dense if v.path == table.name)
    values = dict(zip((v.path for v in dense.model.dense), dense.store.read_dense(), strict=True))
    np.testing.assert_array_equal(of_dense.rows(path, range(table.rows)), values[path])


# Run without tfps: whoever has TensorFlow alone finds the rows as well.
LOOK_UP = """
import sys
for name in ("tfps", "trainer", "configs", "keras"):
    sys.modules[name] = None
import json
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
names = [table["name"] for table in json.load(open(sys.argv[1] + "/schema.json"))["tables"]]
rows = model.rows[names.index("wide/embeddings")](tf.constant([5, 1024], tf.int64))
print(json.dumps(rows.numpy().tolist()))
"""


def test_tensorflow_alone_gives_them(exported):
    model = exported["slices"]
    command = [sys.executable, "-c", LOOK_UP, model.directory]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    np.testing.assert_array_equal(
        np.float32(json.loads(done.stdout)), model.rows("wide/embeddings", [5, 1024])
    )


def changed(model, directory, tables):
    """The same model with another account of its tables."""
    schema = json.loads(pathlib.Path(model.directory, SCHEMA_FILE).read_text())
    schema["tables"] = tables
    return ExportedModel(str(directory), tf.saved_model.load(model.directory), schema)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "has 0 tables, but the SavedModel gives rows of 3"),
        *((x, "'tables' is not a list of tables with name, rows and dim") for x in (3, None)),
        ([{"name": "wide"}], "'tables' is not a list of tables with name, rows and dim"),
        ([1, 2, 3], "'tables' is not a list of tables with name, rows and dim"),
    ],
)
def test_tables_that_are_not_those_of_the_model_are_refused(exported, tmp_path, tables, message):
    with pytest.raises(UserError, match=message):
        changed(exported["slices"], tmp_path, tables)
