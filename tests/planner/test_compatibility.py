import dataclasses

import keras
import pytest

from configs.smoke import Smoke, get_config
from tfps.errors import UserError
from tfps.experiment.mode import Mode
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
class Half(Smoke):
    def build_model(self):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return super().build_model()
        finally:
            keras.config.set_dtype_policy("float32")


def check(mode, task=None, data=None, **train):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment,
        task=task or experiment.task,
        train=dataclasses.replace(experiment.train, **train),
        data=dataclasses.replace(experiment.data, **(data or {})),
    )
    model = StatelessModel(experiment.task, 0)
    refuse_unsuitable(mode, experiment, model, Rules.of(experiment.task, model))


CASES = {
    "pipeline_depth": ({"pipeline_depth": 1}, "--mode=sync pulls when it is a batch's turn"),
    "bad records": ({"data": {"max_bad_records": 3}}, "--mode=sync cannot pass over bad records"),
    "clipping": ({"task": Clipped()}, "--mode=sync: an optimizer has global_clipnorm"),
    "float16": ({"task": Half()}, "--mode=sync does not scale the loss"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_rounds_have_no_way_for_is_refused(case):
    settings, message = CASES[case]
    check(Mode("async"), **settings)
    with pytest.raises(UserError, match=message):
        check(Mode("sync"), **settings)
    check(Mode("sync"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pipeline_depth": 1}, "--batches_per_exchange=4 pulls when it is a batch's turn"),
        ({"data": {"max_bad_records": 3}}, "--batches_per_exchange=4 cannot pass over bad records"),
        ({"task": Half()}, "--batches_per_exchange=4 does not scale the loss"),
    ],
)
def test_what_batches_together_have_no_way_for_is_refused(settings, message):
    check(Mode("async"), **settings)
    with pytest.raises(UserError, match=message):
        check(Mode("async", batches_per_exchange=4), **settings)
    check(Mode("async", batches_per_exchange=4), Clipped())
    check(Mode("async", batches_per_exchange=4), FollowTheLeader())


def test_a_learning_rate_by_staleness_is_refused_where_there_is_one_for_all_gradients():
    check(Mode("async"), FollowTheLeader())
    check(Mode("async", staleness_power=1.0))
    with pytest.raises(UserError, match="Ftrl makes a parameter anew"):
        check(Mode("async", staleness_power=1.0), FollowTheLeader())


def test_differences_that_cannot_be_added_are_refused():
    check(Mode("local_sgd"), Clipped())
    for task, message in ((FollowTheLeader(), "Ftrl makes a parameter anew"), (Half(), "float16")):
        with pytest.raises(UserError, match=f"--mode=local_sgd.*{message}"):
            check(Mode("local_sgd"), task)
