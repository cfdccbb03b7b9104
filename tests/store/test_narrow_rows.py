"""Tables whose rows are bfloat16, or whose slots have one value per row, in a whole store."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.checkpoint.saved_state import DATA, save, saver_of
from tests.store.keyed.groups import Keyed
from tests.training_fixtures import train_with
from tfps.checkpoint import increments
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.keyed_rows import SavedKeyedGroup
from tfps.checkpoint.restore import WarmStart, restore
from tfps.checkpoint.saved_values import SavedGroup, summaries
from tfps.errors import UserError
from tfps.export.parameters import CheckpointParameters
from tfps.job_dir import JobDir
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store import group_layout
from tfps.store.parameter_store import ParameterStore
from tfps.worker.step import Step

# Of tables; those that make up for updates and those that do not, with slots of both kinds.
OPTIMIZERS = {
    "row-wise": lambda: tfps.RowWiseAdagrad(0.2),
    "decayed row-wise": lambda: tfps.RowWiseAdagrad(0.2, weight_decay=0.01),
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adam": lambda: keras.optimizers.Adam(0.05),
}
FORMS = [
    pytest.param(form, id="-".join(form))
    for form in (
        ("row-wise", "float32"),
        ("row-wise", "bfloat16"),
        ("decayed row-wise", "bfloat16"),
        ("sgd", "bfloat16"),
        ("adam", "bfloat16"),
    )
]
IDS = np.arange(40)


@pytest.fixture(name="small_increments", autouse=True)
def small_increments_fixture(monkeypatch):
    """Increments hold some rows of these small tables, too."""
    monkeypatch.setattr(group_layout, "TRACKED_BYTES", 1)
    monkeypatch.setattr(increments, "TRACKED_BYTES", 1)


@dataclasses.dataclass(frozen=True)
class Visits(tfps.Task):
    """Whether a user visits a place; users have no vocabulary."""

    tables: str = "row-wise"
    row_dtype: str = "float32"

    def features(self):
        return tfps.Feature("user", "int64"), tfps.Feature("place", "int64", vocabulary=40)

    def label(self):
        return tfps.Feature("label", "int64", vocabulary=2)

    def build_model(self):
        user, place = (keras.Input((), name=name, dtype="int64") for name in ("user", "place"))
        rows = {"row_dtype": self.row_dtype}
        users = tfps.DynamicEmbedding(4, 200, name="users", **rows)
        places = tfps.Embedding(40, 4, name="places", **rows)
        joined = keras.layers.Concatenate()([users(user), places(place)])
        return keras.Model([user, place], keras.layers.Dense(1, name="head")(joined))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.SGD(0.1)

    def table_optimizer(self, table):
        return OPTIMIZERS[self.tables]()


def make(form, parts=2):
    task = Visits(*form)
    model = StatelessModel(task, 0)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, 0)
    return store, train_with(Step(task, model, store))


def train(step, first, end):
    """Makes steps of a label that ids decide; returns their losses."""
    losses = []
    for number in range(first, end):
        drawn = np.random.default_rng(number)
        ids = [tf.constant(drawn.choice(IDS, 16)) for _ in range(2)]
        label = tf.cast(ids[0] % 5 + ids[1] % 5 > 4, tf.int64)
        features = dict(zip(("user", "place"), ids, strict=True))
        losses.append(float(step(features, {"label": label}, tf.constant([7, number], tf.int64))))
    return losses


def rows_of(parameters):
    """The rows of both tables by the ids, `[2, ids, dim]`."""
    ids = IDS.astype(np.int64)
    if isinstance(parameters, ParameterStore):
        return np.stack([parameters.read_rows(table, ids) for table in range(2)])
    found = parameters.read_rows({0: ids, 1: ids})
    return np.stack([found[0], found[1]])


def stored_bits(store):
    """What the ps hold of all rows, the same on any number of ps."""
    slices = [each for each in store.slices() if each.name.startswith("tables_dim")]
    slices = sorted(slices, key=lambda each: (each.name, each.first))
    bits = [b"".join(each.variable.numpy().tobytes() for each in slices)]
    for group in store.keyed_groups:
        parts = [group.save(part) for part in range(len(store.devices))]
        for field in zip(*parts, strict=True):
            bits.append(b"".join(each.numpy().tobytes() for each in field))
    return bits


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_all_is_restored_bit_by_bit_onto_another_number_of_ps(form, tmp_path):
    first, step = make(form)
    train(step, 0, 4)
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, first, largest_increment=2.0) as saver:
        for end, is_full in ((8, True), (9, False)):
            train(step, end - 4, end)
            before = stored_bits(first), rows_of(first)
            checkpoint = save(saver, end, is_full)
        assert checkpoint.increment
    second, second_step = make(form, parts=3)
    restore(directory.latest(), second, DATA)
    assert stored_bits(second) == before[0]
    np.testing.assert_allclose(rows_of(second), before[1], rtol=0, atol=1e-6)
    assert np.isfinite(train(second_step, 9, 12)).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_is_read_as_the_ps_have_it(form, tmp_path):
    store, step = make(form)
    train(step, 0, 6)
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, store) as saver:
        checkpoint = save(saver, 6, is_full=True)
    task = Visits(*form)
    model = StatelessModel(task, 0)
    mine = CheckpointParameters(checkpoint, model, Rules.of(task, model))
    np.testing.assert_allclose(rows_of(mine), rows_of(store), rtol=0, atol=1e-6)
    found = summaries(checkpoint, 3)
    for summary in found:
        assert (summary.row.dtype, summary.row.single) == (form[1], int("row-wise" in form[0]))
    assert [summary.norms.count for summary in found][1:] == [40]
    [ids], [keys] = SavedGroup.all_in(checkpoint), SavedKeyedGroup.all_in(checkpoint)
    assert {ids.row, keys.row} == {group.row for group in store.layout.groups}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("adam", "float32"), ("row-wise", "bfloat16")),
        (("row-wise", "bfloat16"), ("adam", "bfloat16")),
        pytest.param(("row-wise", "bfloat16"), ("sgd", "float32"), marks=pytest.mark.slow),
    ],
)
def test_layers_of_a_job_whose_rows_lie_otherwise_are_taken(theirs, ours, tmp_path):
    saved, step = make(theirs)
    train(step, 0, 6)
    with saver_of(CheckpointDirectory(JobDir(tmp_path)), saved) as saver:
        save(saver, 6, is_full=True)
    store, step = make(ours, parts=3)
    WarmStart(str(tmp_path), ("users", "places")).begin(store)
    expected = rows_of(saved)
    if ours[1] == "bfloat16":
        expected = tf.cast(tf.cast(expected, tf.bfloat16), tf.float32).numpy()
    np.testing.assert_array_equal(rows_of(store), expected)
    assert np.isfinite(train(step, 6, 9)).all()
    assert not np.array_equal(rows_of(store), expected)
    with pytest.raises(UserError, match=r"does not fit this run: .* rule was "):
        WarmStart(str(tmp_path)).begin(make(ours)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["row-wise", *(pytest.param(x, marks=pytest.mark.slow) for x in ("sgd", "adam"))],
)
def test_bfloat16_rows_learn_what_float32_rows_learn(name):
    losses = {}
    for dtype in ("float32", "bfloat16"):
        store, step = make((name, dtype))
        losses[dtype] = train(step, 0, 150)
    begun, ended = np.mean(losses["float32"][:20]), np.mean(losses["float32"][-20:])
    assert ended < 0.9 * begun
    # Rounding adds noise of 1/256 of each value, of which a loss sees a small part.
    assert abs(np.mean(losses["bfloat16"][-20:]) - ended) < 0.03 * begun
    rows = rows_of(store)
    is_caught_up = store.layout.groups[0].catches_up
    exact = tf.cast(tf.cast(rows, tf.bfloat16), tf.float32).numpy()
    assert np.array_equal(rows, exact) != is_caught_up


def test_an_update_rounds_each_value_to_one_of_its_neighbours():
    """And evenly: on average nothing is added to what the update asks for."""
    keyed = Keyed(dim=8, row_dtype="bfloat16", max_rows=2000)
    keys = np.arange(1000)
    started = keyed.train(keys, gradient=0.0).rows[0]
    np.testing.assert_array_equal(started, tf.cast(tf.cast(started, tf.bfloat16), tf.float32))
    pull = keyed.pull(keys)
    np.testing.assert_array_equal(pull.rows[0], started)  # by 0 nothing is rounded
    gradient = np.float32(0.0123)
    keyed.push(pull, gradient)
    asked, found = started - gradient, keyed.pull(keys).rows[0]
    down = (asked.view(np.int32) & -65536).view(np.float32)
    up = ((asked.view(np.int32) & -65536) + 65536).view(np.float32)
    assert np.all((found == down) | (found == up))
    assert 0.3 < np.mean(found == up) < 0.7
    # 6 standard deviations of a mean; that of one value is at most half the distance.
    assert abs((found - asked).mean()) < 6 * np.abs(up - down).mean() / 2 / np.sqrt(found.size)


@pytest.mark.slow
def test_a_checkpoint_with_rows_of_another_dtype_does_not_fit(tmp_path):
    store, step = make(("sgd", "bfloat16"))
    train(step, 0, 2)
    directory = CheckpointDirectory(JobDir(tmp_path))
    with saver_of(directory, store) as saver:
        save(saver, 2, is_full=True)
    other, _ = make(("sgd", "float32"))
    with pytest.raises(UserError, match="row_dtype was bfloat16, is float32"):
        restore(directory.latest(), other, DATA)


@pytest.mark.parametrize("layer", [tfps.Embedding, tfps.DynamicEmbedding])
def test_other_dtypes_of_rows_are_refused(layer):
    with pytest.raises(UserError, match="row_dtype='float16' is not one of float32, bfloat16"):
        layer(9, 4, row_dtype="float16")
