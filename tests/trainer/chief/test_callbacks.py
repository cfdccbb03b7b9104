"""Callbacks in runs of one process, beside the same ones in Keras's `fit` on the same records."""

import csv
import io
import json
import re

import keras
import numpy as np
import pytest

import tfps
from tests.strangers_callbacks import CosineWarmRestarts, JsonLines, StopAtThreshold
from tests.training_fixtures import inputs_of
from tfps.checkpoint.checkpoint import NO_LOSSES, TrainedEpoch
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.job_dir import JobDir, report
from tfps.monitoring import recorder
from tfps.monitoring.events import EpochTrained
from trainer.chief.callback_choice import Choice, make_callbacks
from trainer.chief.callbacks import Callbacks
from trainer.chief.interruption import Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay

RECORDS, BATCH, EPOCHS = 96, 16, 9
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((RECORDS, 3)).astype("f4")
Y = (X.sum(1) + 0.3 * DRAW.standard_normal(RECORDS)).astype("f4")
LABEL = tfps.Feature("label", "float32")


def compiled(rate=0.05):
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.layers.Dense(1, kernel_initializer="zeros")(x))
    model.compile(keras.optimizers.SGD(rate, momentum=0.5), "mse", metrics=["mae"])
    return model


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("data"))
    features = (tfps.Feature("x", "float32", (3,)),)
    tfps.write_dataset(directory, {"x": X}, Y, features=features, label=(LABEL,))
    return directory


def train(model, data, job_dir, callbacks, epochs=EPOCHS, cluster=None, evaluates=True):
    experiment = tfps.Experiment(
        "line",
        tfps.task_of(model, LABEL),
        data=tfps.Data(train=data, eval=data if evaluates else "", shuffle_buffer=0),
        train=tfps.Train(batch_size=BATCH, epochs=epochs),
        callbacks=callbacks,
    )
    inputs = inputs_of(experiment, job_dir, cluster)
    display = ProgressDisplay(io.StringIO(), False)
    run(inputs, WaitLimits(), Interruption(grace_seconds=0.0), display, Monitoring())
    return report.read(JobDir(job_dir))


@pytest.mark.parametrize("last", [0.1, 0.0])
def test_the_history_has_the_rate_that_an_epoch_was_trained_with(data, tmp_path, last):
    rates = [0.4, 0.3, 0.2, last]
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, _: rates[epoch])
    train(compiled(), data, tmp_path, lambda task: [scheduler], len(rates), evaluates=False)
    epochs = [x for x in recorder.read(JobDir(tmp_path)) if isinstance(x, EpochTrained)]
    assert [x.learning_rate for x in epochs] == pytest.approx(rates)


def fit(model, callbacks):
    model.fit(
        X, Y, BATCH, EPOCHS, callbacks=callbacks, validation_data=(X, Y), shuffle=False, verbose=0
    )


def plateaus(directory):
    """What halves the rate and ends the training as the loss comes to rest, and tells of it."""
    return [
        keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1, min_delta=0.1, min_lr=1e-4),
        keras.callbacks.EarlyStopping(patience=4, min_delta=0.1),
        keras.callbacks.CSVLogger(str(directory / "log.csv")),
        JsonLines(str(directory / "log.json")),
        keras.callbacks.TerminateOnNaN(),
    ]


def rows_of(directory):
    with (directory / "log.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_run_that_goes_on_tells_callbacks_what_one_fit_would(data, tmp_path):
    model, ours, theirs = compiled(), tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    first = train(model, data, tmp_path / "job", lambda task: plateaus(ours), epochs=4)
    assert (first["epochs"], first["stopped_early"]) == (4, None)
    done = train(model, data, tmp_path / "job", lambda task: plateaus(ours))
    fit(model, plateaus(theirs))
    found, expected = rows_of(ours), rows_of(theirs)
    assert 4 < len(expected) < EPOCHS
    # Of the training records the loss alone is known.
    assert list(found[0]) == [name for name in expected[0] if name != "mae"]
    assert [row["learning_rate"] for row in found] == [row["learning_rate"] for row in expected]
    assert len({row["learning_rate"] for row in found}) > 2
    for row, other in zip(found, expected, strict=True):
        for name in row:
            assert float(row[name]) == pytest.approx(float(other[name]), abs=1e-5), name
    assert done["epochs"] == len(expected)
    last = f"on_epoch_end() of epoch {len(expected)}"
    assert done["stopped_early"] == f"callback EarlyStopping has set stop_training in {last}"


def strangers(directory):
    return [
        CosineWarmRestarts(0.02, 0.002),
        StopAtThreshold("val_mae", 0.3),
        JsonLines(str(directory / "log.json")),
    ]


def lines_of(directory):
    return [json.loads(line) for line in (directory / "log.json").read_text().splitlines()]


def test_strangers_callbacks_say_of_the_same_epochs_what_they_say_in_fit(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    model = compiled(0.05)
    fit(model, strangers(theirs))
    expected = lines_of(theirs)
    assert 2 < len(expected) < EPOCHS
    for line in expected:
        del line["mae"]
    callbacks = Callbacks(strangers(ours), 0.05, {"epochs": EPOCHS})
    evaluated = [{"loss": line["val_loss"], "mae": line["val_mae"]} for line in expected]
    trained = [TrainedEpoch(line["epoch"], 0, line["loss"]) for line in expected]
    callbacks.begin(list(zip(trained[:2], evaluated[:2], strict=True)))  # by another process
    for epoch, metrics in zip(trained[2:], evaluated[2:], strict=True):
        assert callbacks.reason_to_stop is None
        callbacks.begin_epoch(epoch.number)
        callbacks.begin_evaluation()
        callbacks.end_epoch(epoch, metrics)
    assert callbacks.reason_to_stop.startswith("callback StopAtThreshold has set stop_training")
    assert callbacks.learning_rate == float(model.optimizer.learning_rate)
    callbacks.end()
    assert lines_of(ours) == expected


def test_every_hook_of_an_epoch_is_heard_in_the_order_of_fit(tmp_path):
    def listening(heard):
        names = ("train_begin", "epoch_begin", "test_begin", "test_end", "epoch_end", "train_end")
        return [
            keras.callbacks.LambdaCallback(
                **{f"on_{name}": lambda *given, name=name: heard.append((name, *given[:-1]))}
            )
            for name in names
        ]

    ours, theirs = [], []
    compiled().fit(X, Y, BATCH, 2, 0, listening(theirs), validation_data=(X, Y))
    callbacks = Callbacks(listening(ours), 0.05, {})
    callbacks.begin([])
    losses = NO_LOSSES
    for number in range(2):
        callbacks.begin_epoch(number)
        callbacks.begin_epoch(number)  # after a checkpoint in the middle of it
        callbacks.begin_evaluation()
        losses = losses.trained(30.0, 10, 1.0).trained(30.0, 20, 1.0).ended(number, 0)
        callbacks.end_epoch(losses.epochs[-1], {})
    callbacks.end()
    assert ours == theirs
    assert [epoch.loss for epoch in losses.epochs] == [2.0, 2.0]


def own(**hooks):
    return type("Own", (keras.callbacks.Callback,), hooks)()


def refused(callbacks, metrics=("loss", "mae"), has_schedule=False):
    experiment = tfps.Experiment("line", tfps.task_of(compiled, LABEL, ()), callbacks=callbacks)
    with pytest.raises(UserError) as refusal:
        make_callbacks(experiment, metrics, has_schedule)
    return str(refusal.value)


OF_KERAS = keras.callbacks
REFUSED = {
    "per_batch": (
        lambda: own(on_train_batch_end=print),
        r"callback Own has on_train_batch_end\(\), but no single process sees each batch",
    ),
    "per_batch_lambda": (
        lambda: OF_KERAS.LambdaCallback(on_train_batch_begin=print),
        r"callback LambdaCallback has on_train_batch_begin\(\)",
    ),
    "prediction": (lambda: own(on_predict_end=print), r"on_predict_end\(\), but a run predicts"),
    "average": (lambda: OF_KERAS.SwapEMAWeights(), "no average of the weights"),
    "append": (lambda: OF_KERAS.CSVLogger("log.csv", append=True), "append=True would write twice"),
    "unknown_metric": (
        lambda: OF_KERAS.EarlyStopping("val_auc"),
        r"EarlyStopping\(monitor='val_auc'\): the logs of an epoch have loss, val_loss, val_mae$",
    ),
    "no_callback": (lambda: print, "is no keras.callbacks.Callback"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_chief_cannot_call_is_refused_by_name(name):
    make, message = REFUSED[name]
    assert re.search(message, refused(lambda task: [make()]))


def test_all_that_is_wrong_is_one_message():
    made = [OF_KERAS.EarlyStopping("val_auc"), own(on_batch_end=print), OF_KERAS.SwapEMAWeights()]
    said = refused(lambda task: made)
    assert re.search(r"val_auc'.*; .*on_batch_end\(\), but .*; .*no average of the weights", said)


def chosen(*made, **train):
    task = tfps.task_of(compiled, LABEL, ())
    settings = tfps.Train(**train)
    experiment = tfps.Experiment("line", task, train=settings, callbacks=lambda task: list(made))
    choice = Choice.of(experiment)
    return choice, choice.applied(experiment).train


def test_what_tfps_does_by_itself_is_said_and_not_called(tmp_path):
    stopping = OF_KERAS.EarlyStopping("val_mae", restore_best_weights=True)
    choice, train = chosen(
        OF_KERAS.ModelCheckpoint("best.keras", "val_mae", save_best_only=True),
        OF_KERAS.TensorBoard(str(tmp_path)),
        OF_KERAS.BackupAndRestore(str(tmp_path)),
        stopping,
    )
    assert choice.callbacks == [stopping]
    assert not stopping.restore_best_weights
    assert (train.best_metric, train.export) == ("mae", "best")
    notes = "\n".join(choice.notes)
    for text in (
        "ModelCheckpoint is not called: checkpoints are saved by themselves",
        "TensorBoard is not called: JOB_DIR/tensorboard",
        "BackupAndRestore is not called: the same command resumes",
        "EarlyStopping: the best evaluation's model is exported",
    ):
        assert text in notes


def test_the_best_is_chosen_by_one_metric():
    best = OF_KERAS.ModelCheckpoint("best.keras", "val_mae", save_best_only=True)
    stopping = OF_KERAS.EarlyStopping(restore_best_weights=True)
    with pytest.raises(UserError, match="the best is to be chosen by loss and by mae; name one"):
        chosen(best, stopping)
    with pytest.raises(UserError, match=r"best_metric=auc, but a callback wants .* by val_mae"):
        chosen(best, best_metric="auc")
    with pytest.raises(UserError, match=r"monitor='loss'\): the best is chosen by evaluations"):
        chosen(OF_KERAS.EarlyStopping("loss", restore_best_weights=True))
    assert chosen(stopping, export="none")[1].export == "none"


def test_callbacks_that_cannot_be_made_or_do_not_fit_the_run_are_refused():
    assert "callbacks of 'line': no such file" in refused(lambda task: open_nothing())
    assert "callbacks of 'line': not a list, but <" in refused(lambda task: own())
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate)
    assert "the optimizer's is a schedule" in refused(lambda task: [scheduler], (), True)
    stopping = [keras.callbacks.EarlyStopping("val_ndcg")]
    assert "add mode='max' or mode='min'" in refused(lambda task: stopping, ("loss", "ndcg"))
    assert "name evaluation shards with --data.eval" in refused(lambda task: stopping, ())
    with pytest.raises(UserError, match="give a function of the task"):
        tfps.Experiment("line", tfps.task_of(compiled, LABEL, ()), callbacks=stopping)


def open_nothing():
    raise OSError("no such file")


def test_of_known_metrics_callbacks_know_what_is_better():
    stopping = keras.callbacks.EarlyStopping("val_clicked_AUC", patience=1)
    experiment = tfps.Experiment(
        "line", tfps.task_of(compiled, LABEL, ()), callbacks=lambda task: [stopping]
    )
    make_callbacks(experiment, ["loss", "clicked_AUC"], False)
    assert stopping.mode == "max"


FAILING = {
    "weights": (
        lambda self, epoch, logs: self.model.get_weights(),
        r"callback Own: on_epoch_end\(\) \(test_callbacks.py:\d+\) fails: model.get_weights: "
        "callbacks run in the chief, which has only model.optimizer.learning_rate, ",
    ),
    "unknown_log": (
        lambda self, epoch, logs: logs["acc"],
        r"Own: on_epoch_end\(\) \(test_callbacks.py:\d+\) fails: KeyError: 'acc'",
    ),
    "not_finite": (
        lambda self, epoch, logs: self.model.optimizer.learning_rate.assign(float("nan")),
        r"on_epoch_end\(\) has set the learning rate to nan",
    ),
    "another_optimizer": (
        lambda self, epoch, logs: setattr(self.model, "optimizer", None),
        "fails: model.optimizer: callbacks run in the chief",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_callback_that_fails_is_named_with_its_hook(name):
    hook, message = FAILING[name]
    callbacks = Callbacks([own(on_epoch_end=hook)], 0.05, {})
    with pytest.raises(UserError, match=message):
        callbacks.end_epoch(TrainedEpoch(0, 6, 1.0), None)


def test_a_schedule_can_be_read_and_not_be_set():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    rates = []

    def read(self, epoch, logs):
        rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    def set_(self, logs):
        self.model.optimizer.learning_rate = 0.1

    callbacks = Callbacks([own(on_epoch_end=read, on_train_end=set_)], schedule, {})
    callbacks.end_epoch(TrainedEpoch(0, 20, 1.0), None)
    assert rates == [pytest.approx(0.025)]
    assert callbacks.learning_rate is None
    with pytest.raises(UserError, match="the optimizer's learning rate is a schedule"):
        callbacks.end()


def test_callbacks_and_an_evaluator_are_refused(data, tmp_path):
    with pytest.raises(UserError, match="'line' has callbacks, and the job an evaluator"):
        train(compiled(), data, tmp_path, plateaus, cluster=Cluster(evaluators=("nowhere:1",)))
