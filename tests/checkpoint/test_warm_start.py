"""New jobs that begin with what another has learnt: all of it, or some layers."""

import dataclasses
import functools
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.checkpoint.saved_state import DATA, assert_equal, whole
from tests.corruption import flip_bit
from tests.training_fixtures import save
from tfps.checkpoint import commit_marker
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.layer_transfer import LayerSelection, take_layers
from tfps.checkpoint.reader import UnseenFilesError
from tfps.checkpoint.restore import WarmStart
from tfps.errors import UserError
from tfps.experiment.experiment import Train
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.layout import StoreLayout
from tfps.store.parameter_store import ParameterStore

TABLE, HIDDEN, STEPS = "token_table/embeddings", "hidden/kernel", 16


@dataclasses.dataclass(frozen=True)
class Tuned(Smoke):
    """The smoke model with another head, and a second table before the one of the smoke model."""

    rule: str = "adam"
    freezes: bool = False

    def build_model(self) -> keras.Model:
        numbers = keras.Input((4,), name="numbers")
        token = keras.Input((), name="token", dtype="int64")
        other = keras.layers.Embedding(self.vocabulary, self.dim, name="other_table")(token)
        kept = keras.layers.Embedding(self.vocabulary, self.dim, name="token_table")
        kept.trainable = not self.freezes
        hidden = keras.layers.Concatenate()([numbers, kept(token)])
        hidden = keras.layers.BatchNormalization(name="normalized")(hidden)
        hidden = keras.layers.Dense(self.units, name="hidden", trainable=not self.freezes)(hidden)
        outputs = keras.layers.Dense(1, name="head")(keras.layers.Concatenate()([hidden, other]))
        return keras.Model({"numbers": numbers, "token": token}, outputs)

    def optimizer(self) -> keras.optimizers.Optimizer:
        return keras.optimizers.get({"class_name": self.rule, "config": {"learning_rate": 0.1}})


@functools.cache
def model_of(task):
    return StatelessModel(task, seed=5)


def store_of(task, optimized_by=None, row_updates="keras", parts=3):
    """Parameters of a task that nobody has trained."""
    model = model_of(task)
    rules = Rules.of(optimized_by or task, model, row_updates)
    return ParameterStore(model, rules, ["/device:CPU:0"] * parts, seed=5)


def signature_of(task):
    """That of the same parameters, of which there are none yet."""
    rules = Rules.of(task, model_of(task))
    return StoreLayout.of(model_of(task), rules, 2).signature(scales_loss=False)


def by_path(store):
    """Dense parameters and state by path, tables by name."""
    layout = store.layout
    found = dict(zip(layout.dense.names, store.read_dense(), strict=True))
    found |= dict(zip(layout.state.whole.names, store.read_state(), strict=True))
    return found | {t.name: store.read_table(k) for k, t in enumerate(layout.tables)}


@pytest.fixture(name="job", scope="module")
def job_fixture(tmp_path_factory):
    """A job's directory with a checkpoint, and the parameters that it holds, on 2 ps."""
    store, job_dir = store_of(Smoke(), parts=2), tmp_path_factory.mktemp("job")
    drawn = np.random.default_rng(0)
    for slice_ in store.slices():
        shape, is_number = slice_.variable.shape, slice_.variable.dtype == tf.int32
        values = drawn.integers(0, STEPS + 1, shape) if is_number else drawn.random(shape)
        slice_.variable.assign(values.astype(slice_.variable.dtype.as_numpy_dtype))
    store.set_steps(STEPS)
    save(CheckpointDirectory(JobDir(job_dir)), store, QueueState(2), DATA)
    return job_dir, store


def test_a_job_begins_with_all_that_another_holds_on_another_number_of_ps(job):
    job_dir, saved = job
    store = store_of(Smoke())
    before = sorted(path for path in job_dir.rglob("*"))
    taken = WarmStart(str(job_dir)).begin(store)
    assert_equal(whole(saved), whole(store))
    assert store.steps() == saved.steps() == taken.steps == STEPS
    assert sorted(path for path in job_dir.rglob("*")) == before


def test_a_checkpoint_is_named_by_its_own_directory(job):
    job_dir, saved = job
    [path] = CheckpointDirectory(JobDir(job_dir)).committed()
    store = store_of(Smoke())
    assert WarmStart.of(Train(init_from=f"{path}/")).begin(store).path == path
    assert_equal(whole(saved), whole(store))


def test_what_differs_is_named_with_both_shapes_and_the_way_out(job):
    job_dir, saved = job
    with pytest.raises(
        UserError,
        match=rf"--train.init_from: .* does not fit this run: tables {TABLE} was \[20, 4\], is "
        r"\[30, 5\]; .*--train.init_layers=NAME,NAME takes",
    ):
        WarmStart(str(job_dir)).check({**saved.signature(), "tables": {TABLE: [30, 5]}})


def test_matching_layers_are_taken_with_slots_and_steps_of_a_new_job(job, caplog):
    job_dir, saved = job
    store = store_of(Tuned())
    initial, theirs = by_path(store), by_path(saved)
    with caplog.at_level("INFO"):
        taken = WarmStart(str(job_dir), ("token_table", "normal*", "hidden")).begin(store)
    found = by_path(store)
    new = {name for name in found if name.startswith(("head/", "other_table/"))}
    for name, value in found.items():
        expected = initial if name in new else theirs
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-6, err_msg=name)
    assert not any(np.array_equal(found[name], initial[name]) for name in (TABLE, HIDDEN))
    assert store.steps() == 0
    slots = {name: part for name, part in whole(store).items() if name.startswith("dense/")}
    assert slots
    assert not any(part.any() for part in slots.values())
    lines = whole(store)["tables_dim4"].reshape(-1, 3, 4)
    assert lines[:, 0].any()
    assert not lines[:, 1:].any()
    assert f"taken from {taken.path}, with new slots: " in caplog.text
    assert "not taken of it: logits/kernel, logits/bias" in caplog.text
    assert re.search("new, with initial values: .*other_table/embeddings", caplog.text)


def test_layers_that_are_trained_no_more_are_taken_as_well(job):
    job_dir, saved = job
    store = store_of(Tuned(freezes=True))
    WarmStart(str(job_dir), ("*",)).begin(store)
    found, theirs = by_path(store), by_path(saved)
    for name in (TABLE, HIDDEN, "normalized/moving_mean"):
        np.testing.assert_allclose(found[name], theirs[name], rtol=0, atol=1e-6, err_msg=name)


def rows_as_they_lie(store):
    """The rows of the smoke model's table as their last updates left them."""
    rows = whole(store)["tables_dim4"].reshape(-1, 3, 4)[:, 0]
    return rows[store.layout.groups[0].layout.rows_of(0)]


@pytest.mark.parametrize(("rule", "row_updates"), [("adagrad", "keras"), ("adam", "lazy")])
def test_another_optimizer_takes_rows_as_that_of_the_other_job_would_have_moved_them(
    job, rule, row_updates
):
    job_dir, saved = job
    current = saved.read_table(0)
    assert np.abs(rows_as_they_lie(saved) - current).max() > 1e-3
    store = store_of(Tuned(), Tuned(rule=rule), row_updates)
    WarmStart(str(job_dir), ("*",)).begin(store)
    found = by_path(store)
    np.testing.assert_allclose(found[TABLE], current, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(found[HIDDEN], by_path(saved)[HIDDEN])


def test_rows_are_moved_by_the_rates_that_the_other_job_s_callbacks_have_set(tmp_path):
    task = Smoke()
    rules = Rules.of(task, model_of(task))
    saved = ParameterStore(model_of(task), rules, ["/device:CPU:0"], 5, may_change_rate=True)
    for slice_ in saved.slices():
        if slice_.name == "tables_dim4":  # its slots move rows
            slice_.variable.assign(np.random.default_rng(0).random(slice_.variable.shape))
    saved.learning_rates.set(10 * saved.learning_rates.now, 4)
    saved.set_steps(STEPS)
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, saved, QueueState(2), DATA)
    store = store_of(Tuned())
    WarmStart(str(tmp_path), ("token_table",)).begin(store)
    np.testing.assert_allclose(by_path(store)[TABLE], saved.read_table(0), rtol=0, atol=1e-6)
    # The first rate alone would have moved them elsewhere.
    [checkpoint] = [directory.latest()]
    selection = LayerSelection.of(["token_table"], checkpoint.signature, store.signature(), "it")
    take_layers(dataclasses.replace(checkpoint, learning_rates=()), selection, store)
    assert np.abs(by_path(store)[TABLE] - saved.read_table(0)).max() > 1e-3


@pytest.mark.parametrize(
    ("layers", "change", "message"),
    [
        (("hidden", "dens*"), {}, r"--train.init_layers=dens\* matches no layer that this model"),
        (("logits",), {}, "both have: they share normalized, hidden, token_table"),
        (
            ("*_table",),
            {"tables": {TABLE: [30, 5]}},
            rf"table {TABLE} is \[20, 4\] in .* and \[30, 5\] here; name only layers of equal",
        ),
        (
            ("hidden",),
            {"dense": {HIDDEN: [8, 9]}},
            r"variable hidden/kernel is \[8, 8\] in .* and \[8, 9\] here; name only",
        ),
        (
            ("*",),
            {"tables": {}, "dense": {TABLE: [20, 4]}},
            rf"{TABLE} is a table in .* and a dense parameter here; give both jobs the same train",
        ),
        (
            ("*",),
            {"tables": {}, "state": {}, "dense": {"head/kernel": [8, 1]}},
            "this one has head, that one normalized, hidden, logits, token_table",
        ),
    ],
)
def test_layers_that_cannot_be_taken_are_refused_before_any_ps_is_asked(
    job, layers, change, message
):
    with pytest.raises(UserError, match=message):
        WarmStart(str(job[0]), layers).check({**signature_of(Tuned()), **change})


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("encoder", ["encoder/dense/kernel", "encoder/dense_1/kernel"]),
        ("dense", ["dense/kernel", "encoder/dense/kernel"]),
        ("encoder/dense", ["encoder/dense/kernel"]),
        ("dense_*", ["encoder/dense_1/kernel"]),
        ("*", ["dense/kernel", "encoder/dense/kernel", "encoder/dense_1/kernel", "scale"]),
        ("scale", ["scale"]),
    ],
)
def test_a_layer_is_meant_by_its_name_its_path_or_a_pattern_of_them(pattern, matched):
    paths = ["dense/kernel", "encoder/dense/kernel", "encoder/dense_1/kernel", "scale"]
    model = {"dense": {path: [2] for path in paths}, "state": {}, "tables": {}}
    selection = LayerSelection.of([pattern], model, model, "it")
    assert list(selection.variables) == matched
    assert set(selection.new) == set(selection.left) == set(paths) - set(matched)


def test_layers_without_a_job_are_refused():
    with pytest.raises(
        UserError, match=r"--train.init_layers=a,b without --train.init_from: name the job"
    ):
        WarmStart.of(Train(init_layers=("a", "b")))
    assert WarmStart.of(Train()) is None


def test_a_directory_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"--train.init_from=.* holds no checkpoint; name a job's"):
        WarmStart(str(tmp_path)).check({})


@pytest.fixture(name="two")
def two_fixture(job, tmp_path):
    """A job's directory with two checkpoints."""
    job_dir, saved = job
    shutil.copytree(job_dir, tmp_path / "job")
    directory = CheckpointDirectory(JobDir(tmp_path / "job"))
    save(directory, saved, QueueState(3), DATA)
    return directory


def test_a_damaged_checkpoint_of_the_other_job_is_passed_over_and_left_where_it_is(
    two, job, caplog
):
    older, newest = two.committed()
    flip_bit(pathlib.Path(newest, "parameters.data-00000-of-00001"), 50)
    store = store_of(Smoke())
    assert WarmStart(two.path.removesuffix("/checkpoints")).begin(store).path == older
    assert_equal(whole(job[1]), whole(store))
    assert f"{newest} is passed over: parameters.data-00000-of-00001 was altered" in caplog.text
    assert two.committed() == [older, newest]
    with pytest.raises(UserError, match=rf"--train.init_from={newest}: no checkpoint is whole \("):
        WarmStart(newest).begin(store)


def test_the_next_newest_is_taken_where_the_other_job_deletes_one_meanwhile(two, caplog):
    older, newest = two.committed()
    store = store_of(Smoke())

    class Vanishing:
        """A store whose slices are asked for when the checkpoint was seen."""

        signature, set_steps, layout = store.signature, store.set_steps, store.layout
        learning_rates, keyed_groups = store.learning_rates, store.keyed_groups

        @staticmethod
        def slices():
            if commit_marker.is_in(newest):
                two.delete(newest)
            return store.slices()

    assert WarmStart(two.path.removesuffix("/checkpoints")).begin(Vanishing()).path == older
    assert f"checkpoint {newest} is passed over: parameters." in caplog.text


def test_a_ps_that_does_not_see_the_other_job_says_so(two):
    [*_, newest] = two.committed()

    def see_nothing(checkpoint):
        raise UnseenFilesError("not for the ps")

    with pytest.raises(UserError, match="not for the ps"):
        WarmStart(newest)._use_newest(see_nothing)
