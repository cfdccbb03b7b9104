import dataclasses
import functools

import keras
import pytest

import tfps
from configs.smoke import Smoke, get_config
from tests.training_fixtures import InHalfPrecision
from tfps.errors import UserError
from tfps.experiment.mode import MODES, AllReduce, Async, Bounded, LocalSGD
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.planner.compatibility import refuse_unsuitable


@dataclasses.dataclass(frozen=True)
class Clipped(Smoke):
    def optimizer(self):
        return keras.optimizers.Adam(global_clipnorm=1.0)


@dataclasses.dataclass(frozen=True)
class FollowTheLeader(Smoke):
    def optimizer(self):
        return keras.optimizers.Ftrl()


@dataclasses.dataclass(frozen=True)
class Half(InHalfPrecision, Smoke):
    pass


@functools.cache
def model_of(task):
    return StatelessModel(task, 0)


def check(mode, task=None, data=None, **train):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment,
        task=task or experiment.task,
        train=dataclasses.replace(experiment.train, **train),
        data=dataclasses.replace(experiment.data, **(data or {})),
    )
    model = model_of(experiment.task)
    rules = Rules.of(experiment.task, model, repeated_ids=experiment.train.repeated_ids)
    refuse_unsuitable(mode, experiment, model, rules)


CASES = {
    "sync ahead": ("sync", {"pipeline_depth": 1}, "would pull before a round has closed"),
    "bounded ahead": ("bounded", {"pipeline_depth": 5}, "--mode.max_staleness=4 allows fewer"),
    "local_sgd ahead": ("local_sgd", {"pipeline_depth": 1}, "or raise --mode.sync_every"),
    "bad records": ("sync", {"data": {"max_bad_records": 3}}, "cannot pass over bad records"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_mode_has_no_way_for_is_refused(case):
    mode, settings, message = CASES[case]
    check(Async(), **settings)
    with pytest.raises(UserError, match=f"--mode.name={mode}.*{message}"):
        check(MODES[mode](), **settings)
    check(MODES[mode]())


def test_bounded_staleness_pulls_ahead_within_its_bound():
    check(Bounded(max_staleness=2), pipeline_depth=2)


@pytest.mark.parametrize("task", [Clipped(), Half()])
def test_clipped_gradients_and_a_scaled_loss_suit_every_mode(task):
    for mode in ("sync", "bounded", "local_sgd"):
        check(MODES[mode](), task)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pipeline_depth": 1}, "--mode.batches_per_exchange=4 pulls when it is a batch's turn"),
        (
            {"data": {"max_bad_records": 3}},
            "--mode.batches_per_exchange=4 cannot pass over bad records",
        ),
        ({"task": Half()}, "--mode.batches_per_exchange=4 does not scale the loss"),
    ],
)
def test_what_batches_together_have_no_way_for_is_refused(settings, message):
    check(Async(), **settings)
    with pytest.raises(UserError, match=message):
        check(Async(batches_per_exchange=4), **settings)
    check(Async(batches_per_exchange=4), Clipped())
    check(Async(batches_per_exchange=4), FollowTheLeader())


@dataclasses.dataclass(frozen=True)
class WithoutVocabulary(Smoke):
    def build_model(self):
        token = keras.Input((), name="token", dtype="int64")
        rows = tfps.DynamicEmbedding(self.dim, 100, name="tokens")(token)
        return keras.Model(token, keras.layers.Dense(1)(rows))


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (
            Async(batches_per_exchange=4),
            r"--mode.batches_per_exchange=4: a worker .*\(tokens/table/embeddings\)",
        ),
        (AllReduce(), r"--mode.name=allreduce has no .*\(tokens/table/embeddings\)"),
    ],
)
def test_a_table_without_a_vocabulary_is_refused_where_it_cannot_be(mode, message):
    for name in ("local", "async", "sync", "bounded", "local_sgd"):
        check(MODES[name](), WithoutVocabulary())
    check(mode)
    with pytest.raises(UserError, match=message):
        check(mode, WithoutVocabulary())


def test_a_learning_rate_by_staleness_is_refused_where_there_is_one_for_all_gradients():
    check(Async(), FollowTheLeader())
    check(Async(staleness_power=1.0))
    with pytest.raises(UserError, match="Ftrl computes a parameter again"):
        check(Async(staleness_power=1.0), FollowTheLeader())


def test_differences_that_cannot_be_added_are_refused():
    with pytest.raises(UserError, match=r"--mode.name=local_sgd.*Ftrl computes a parameter again"):
        check(LocalSGD(), FollowTheLeader())


@dataclasses.dataclass(frozen=True)
class ClippedByValue(Smoke):
    def optimizer(self):
        return keras.optimizers.Adam(clipvalue=0.5)


@pytest.mark.parametrize("mode", ["sync", "allreduce"])
def test_occurrences_whose_share_in_a_mean_is_not_known_are_not_clipped(mode):
    check(MODES[mode](), ClippedByValue())
    check(Bounded(), ClippedByValue(), repeated_ids="each")
    with pytest.raises(UserError, match=f"--mode.name={mode} with .*=each: clipvalue=0.5 clips"):
        check(MODES[mode](), ClippedByValue(), repeated_ids="each")
