"""Jobs whose words are numbered otherwise than in the checkpoint that they begin with."""

import dataclasses

import keras
import pytest

import tfps
from tests.checkpoint.saved_state import DATA
from tests.training_fixtures import save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import WarmStart, restore
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore


@dataclasses.dataclass(frozen=True)
class Towns(tfps.Task):
    """A town by its place in a list and by a hash, with rows for more."""

    towns: tuple[str, ...] = ("Ulm", "Bonn")
    bins: int = 8

    def features(self):
        return (tfps.Feature("town", "string"),)

    def label(self):
        return tfps.Feature("label", "float32")

    def build_model(self):
        town = keras.Input((), name="town", dtype="string")
        number = keras.layers.StringLookup(vocabulary=list(self.towns), name="places")(town)
        rows = keras.layers.Embedding(5, 4, name="towns")(number)
        hashed = keras.layers.Hashing(self.bins, name="hashed")(town)
        more = keras.layers.Embedding(8, 4, name="more")(hashed)
        both = keras.layers.Concatenate()([rows, more])
        return keras.Model(town, keras.layers.Dense(1, name="head")(both))

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return keras.optimizers.SGD(0.1)


def store_of(task):
    model = StatelessModel(task, seed=5)
    return ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"], seed=5)


@pytest.fixture(name="directory", scope="module")
def directory_fixture(tmp_path_factory):
    """A job's directory with a checkpoint."""
    directory = CheckpointDirectory(JobDir(tmp_path_factory.mktemp("job")))
    save(directory, store_of(Towns()), QueueState(1), DATA)
    return directory


def begin(directory, store):
    WarmStart(directory.path.removesuffix("/checkpoints")).begin(store)


def go_on(directory, store):
    restore(directory.latest(), store, DATA)


@pytest.mark.slow
@pytest.mark.parametrize("use", [begin, go_on])
def test_words_that_were_appended_are_taken_and_words_in_another_order_refused(directory, use):
    use(directory, store_of(Towns(("Ulm", "Bonn", "Rom"))))
    with pytest.raises(
        UserError,
        match="does not fit this run: layer 'places' does not begin with the 3 words that it had, "
        r"\[UNK\] included, in their order\. A row of a table belongs to a number: leave all words",
    ):
        use(directory, store_of(Towns(("Bonn", "Ulm"))))
    with pytest.raises(UserError, match=r"layer 'hashed' was made with .*8, .* is with .*7, "):
        use(directory, store_of(Towns(bins=7)))


@pytest.mark.slow
def test_single_layers_are_taken_with_a_warning(directory, caplog):
    start = WarmStart(directory.latest().path, ("head",))
    start.begin(store_of(Towns(("Bonn", "Ulm"))))
    assert "layer 'places' does not begin with the 3 words" in caplog.text
    caplog.clear()
    start.begin(store_of(Towns()))
    assert "places" not in caplog.text


@dataclasses.dataclass(frozen=True)
class Texts(Towns):
    """A text, whose words a layer within a layer numbers."""

    def build_model(self):
        town = keras.Input((), name="town", dtype="string")
        words = keras.layers.TextVectorization(
            vocabulary=list(self.towns), output_sequence_length=2, name="words"
        )(town)
        number = keras.layers.StringLookup(vocabulary=["Rom"], name="places")(town)
        rows = keras.layers.Flatten()(keras.layers.Embedding(5, 4, name="rows")(words))
        more = keras.layers.Embedding(3, 4, name="more")(number)
        both = keras.layers.Concatenate()([rows, more])
        return keras.Model(town, keras.layers.Dense(1, name="head")(both))


@pytest.mark.slow
def test_words_of_a_layer_without_a_path_are_kept_with_those_of_others(tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, store_of(Texts()), QueueState(1), DATA)
    kept = directory.latest().numberings
    assert sorted(each["words"] for each in kept.values()) == [2, 4]  # of both, [UNK] included
