"""A row that all keys without one share is trained as a dense parameter, in every mode."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.training_fixtures import Trainer, dataset
from tests.worker.test_barrier_loop import BATCH, Plain
from tests.worker.test_keyed_modes import CASES, MEMBERS
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel
from tfps.model.stateless_model import StatelessModel

OPTIMIZERS = {
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.05, weight_decay=0.1),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
}
DIM, OFTEN = 4, 100  # more often than a key occurs


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=MEMBERS * 203, shards=MEMBERS)


@dataclasses.dataclass(frozen=True)
class Strangers(Plain):
    """A table none of whose keys occurs often enough, or one row that is a parameter.

    Attributes:
        has_keys: Whether it is the table.
        admit_after: Of the table.
    """

    has_keys: bool = True
    admit_after: int = OFTEN

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        if self.has_keys:
            own = {"admit_after": self.admit_after, "unknown": "trained", "name": "tokens"}
            row = tfps.DynamicEmbedding(DIM, 10_000, **own)(token)
        else:
            row = keras.layers.Embedding(1, DIM, "zeros", name="one")(0 * token)
        hidden = keras.layers.Concatenate()([numbers, row])
        first, second = (keras.initializers.GlorotUniform(seed) for seed in (1, 2))
        hidden = keras.layers.Dense(self.units, "relu", kernel_initializer=first)(hidden)
        outputs = keras.layers.Dense(1, kernel_initializer=second)(hidden)
        return keras.Model({"numbers": numbers, "token": token}, outputs)


def dense_of(trainer):
    """The dense parameters but that row, and the row."""
    named = {
        variable.path: value
        for variable, value in zip(trainer.model.dense, trainer.store.read_dense(), strict=True)
    }
    [row] = [named.pop(name) for name in ("tokens/unknown_row", "one/embeddings") if name in named]
    return [*named.values(), row.reshape(DIM)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        ("async", "adagrad"),
        ("local_sgd", "ftrl"),
        # Each mode, and each optimizer where nobody waits.
        *(("async", optimizer) for optimizer in OPTIMIZERS if optimizer != "adagrad"),
        *((case, "adagrad") for case in CASES if case not in ("async", "local_sgd")),
    ],
)
def test_it_trains_as_a_parameter_does(manifest, case, optimizer):
    train, settings = CASES[case]
    trained = []
    for has_keys in (True, False):
        task = Strangers(rule=OPTIMIZERS[optimizer](), has_keys=has_keys)
        trainer = Trainer(
            manifest, task, parts=2, batch_size=BATCH, dense_table_bytes=1_000, **settings
        )
        train(trainer)
        trained.append(dense_of(trainer))
    assert np.abs(trained[0][-1]).max() > 1e-3
    for ours, theirs in zip(*trained, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_what_is_exported_has_it_for_keys_that_have_no_row(manifest, tmp_path):
    trainer = Trainer(manifest, Strangers(admit_after=2), parts=2, batch_size=BATCH)
    train, _ = CASES["async"]
    for _ in range(2):
        train(trainer)
    trainer.export(tmp_path / "export")
    *_, row = dense_of(trainer)
    assert np.abs(row).max() > 1e-3
    table = "tokens/table/embeddings"
    keys = np.arange(10_000, 10_010)
    model = ExportedModel.load(str(tmp_path / "export"))
    np.testing.assert_allclose(model.rows(table, keys), np.tile(row, (10, 1)), rtol=0, atol=1e-7)
    known = np.arange(200)
    assert np.isfinite(model.rows(table, known)).all()
    assert not (model.rows(table, known) == row).all()
    features = {"numbers": np.zeros([10, 4], "f4"), "token": keys}
    labels = {"label": np.zeros([10], "i8")}
    expected = trainer.step.predict(features, labels)[1]["predictions"].numpy()
    assert np.isfinite(expected).all()
    found = model.predict(features)["predictions"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_where_no_record_would_train_it_it_is_refused():
    with pytest.raises(UserError, match="layer 'tokens': unknown='trained': with admit_after=1 "):
        StatelessModel(Strangers(admit_after=1), 0)
    tfps.DynamicEmbedding(DIM, 10, evict_first="none", unknown="trained")  # once it is full


def test_it_is_frozen_with_its_layer():
    layer = tfps.DynamicEmbedding(DIM, 10, admit_after=2, unknown="trained", trainable=False)
    again = tfps.DynamicEmbedding.from_config(layer.get_config())
    assert again.options.unknown == "trained"
    rows = tf.constant([[float("-inf")] * DIM, [1.0] * DIM])
    for each in (layer, again):
        each.table.build = lambda: None
        each.build((None,))
        assert not each.unknown_row.trainable
        each.unknown_row.assign([2.0] * DIM)
        np.testing.assert_array_equal(each.with_unknown_row(rows)[:, 0], [2.0, 1.0])
