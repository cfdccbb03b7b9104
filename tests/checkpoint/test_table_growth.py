"""New jobs that begin with another's tables, of which some have more rows by now."""

import dataclasses
import functools

import keras
import numpy as np
import pytest

import tfps
from tests.checkpoint.keyed import RowTrainer
from tests.checkpoint.saved_state import save, saver_of, whole
from tfps.checkpoint import increments
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import WarmStart
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store import group_layout
from tfps.store.parameter_store import ParameterStore

USERS, PLACES = "users/table/embeddings", "places/table/embeddings"
OLD, NEW = np.arange(30), np.arange(30, 1100)  # more than there are buckets


@dataclasses.dataclass(frozen=True)
class Growing(tfps.Task):
    """Two tables of one group, the first of which grows."""

    rows: int = len(OLD)
    rule: str = "adagrad"
    row_dtype: str = "float32"

    def features(self):
        return tfps.Feature("user", "int64"), tfps.Feature("place", "int64", vocabulary=7)

    def label(self):
        return tfps.Feature("label", "float32")

    def build_model(self):
        user, place = (keras.Input((), name=name, dtype="int64") for name in ("user", "place"))
        users = tfps.Embedding(self.rows, 4, row_dtype=self.row_dtype, name="users")
        places = tfps.Embedding(7, 4, row_dtype=self.row_dtype, name="places")
        joined = keras.layers.Concatenate()([users(user), places(place)])
        return keras.Model([user, place], keras.layers.Dense(1, name="head")(joined))

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        rate = {"learning_rate": 0.1}
        decay = {"weight_decay": 0.05} if self.rule == "adamw" else {}
        return keras.optimizers.get({"class_name": self.rule, "config": {**rate, **decay}})


@functools.cache
def model_of(task):
    return StatelessModel(task, seed=5)


def store_of(task, parts):
    model = model_of(task)
    return ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, seed=5)


def rows_of(store, ids):
    names = [table.name for table in store.layout.tables]
    return store.read_rows(names.index(USERS), ids), store.read_table(names.index(PLACES))


@pytest.fixture(name="small_increments", autouse=True)
def small_increments_fixture(monkeypatch):
    """Increments hold some rows of these small tables, too."""
    monkeypatch.setattr(group_layout, "TRACKED_BYTES", 1)
    monkeypatch.setattr(increments, "TRACKED_BYTES", 1)


def trained_job(task, directory, is_increment=False):
    """A store on 2 ps whose rows have missed different numbers of updates, and that is saved."""
    trainer = RowTrainer(store_of(task, 2))
    trainer.train(USERS, OLD)
    with saver_of(
        CheckpointDirectory(JobDir(directory)), trainer.store, largest_increment=2.0
    ) as s:
        for epoch in range(1 + is_increment):
            trainer.train(USERS, OLD[epoch * 7 : epoch * 7 + 5])
            trainer.train(PLACES, [0, 3])
            saved = save(s, epoch, is_full=epoch == 0)
    assert bool(saved.increment) == is_increment
    return trainer


@pytest.mark.quick("adagrad-float32-True")
@pytest.mark.parametrize(
    ("rule", "row_dtype", "is_increment"),
    [
        ("adamw", "float32", False),
        ("adagrad", "float32", True),
        pytest.param("adam", "bfloat16", False, marks=pytest.mark.slow),
    ],
)
def test_a_table_that_grew_keeps_its_rows_with_their_slots_and_new_ones_are_as_drawn(
    tmp_path, caplog, rule, row_dtype, is_increment
):
    task = Growing(rule=rule, row_dtype=row_dtype)
    job = trained_job(task, tmp_path, is_increment)
    grown = RowTrainer(store_of(dataclasses.replace(task, rows=1100), 3))
    drawn, _ = rows_of(grown.store, NEW)
    with caplog.at_level("INFO"):
        WarmStart(str(tmp_path)).begin(grown.store)
    assert f"table {USERS}: 30 rows taken, 1,070 new ones drawn" in caplog.text
    assert grown.store.steps() == job.store.steps()
    np.testing.assert_array_equal(rows_of(grown.store, NEW)[0], drawn)  # not decayed, either
    np.testing.assert_array_equal(rows_of(grown.store, OLD)[0], rows_of(job.store, OLD)[0])
    rounding = 2**-7 if row_dtype == "bfloat16" else 0.0  # it depends on where a row lies
    for ids in ([1, 2, 20], [9, 20, 29]):  # equal slots, and equally long since the last update
        for trainer in (job, grown):
            trainer.train(USERS, ids)
        for ours, theirs in zip(rows_of(grown.store, OLD), rows_of(job.store, OLD), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=rounding, atol=1e-6)
    grown.train(USERS, NEW[:5])
    now, _ = rows_of(grown.store, NEW)
    assert np.abs(now[:5] - drawn[:5]).max(axis=1).min() > 1e-3


@pytest.mark.slow
def test_a_layer_whose_table_grew_is_taken_with_new_slots(tmp_path, caplog):
    job = trained_job(Growing(), tmp_path)
    store = store_of(Growing(rows=1100), 3)
    drawn, places = rows_of(store, NEW)
    with caplog.at_level("INFO"):
        WarmStart(str(tmp_path), ("users",)).begin(store)
    assert f"table {USERS}: 30 rows taken, 1,070 new ones drawn" in caplog.text
    np.testing.assert_array_equal(rows_of(store, OLD)[0], rows_of(job.store, OLD)[0])
    np.testing.assert_array_equal(rows_of(store, NEW)[0], drawn)
    np.testing.assert_array_equal(rows_of(store, NEW)[1], places)
    slots = whole(store)["tables_dim4"].reshape(-1, 2, 4)[:, 1]
    np.testing.assert_allclose(slots, 0.1, rtol=1e-5)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((), rf"tables {USERS} was \[30, 4\], is \[29, 4\]; a table may have more rows than there"),
        (("users",), rf"table {USERS} is \[30, 4\] in .* and \[29, 4\] here; .*may have more rows"),
    ],
)
def test_a_table_that_shrank_is_refused_with_both_sizes(tmp_path, layers, message):
    trained_job(Growing(), tmp_path)
    smaller = store_of(Growing(rows=29), 1)
    with pytest.raises(UserError, match=message):
        WarmStart(str(tmp_path), layers).check(smaller.signature())
