"""The curves of a run as TensorBoard's own reader finds them."""

import itertools

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from tfps.job_dir.report import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    Histogram,
    ParametersMeasured,
    RunBegan,
    Sampled,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)
from tfps.monitoring.tensorboard import TRAIN, VALIDATION, TensorBoardLog

SAVES = SaveCounts(
    saved=1,
    bytes=1000,
    stopped_seconds=0.25,
    write_seconds=0.5,
    touched_rows=7,
    touched_by_table={"user": 7},
)
STALE = StalenessCounts(0.75, [1, 3])
CLOCK = itertools.count(1000)


def began(steps=0, examples=0, epoch=0):
    return TrainingBegan(
        at=next(CLOCK), checkpoint=None, epoch=epoch, examples=examples, steps=steps
    )


def sampled(steps, loss, **more):
    return Sampled(
        at=next(CLOCK),
        epoch=0,
        examples=steps * 10,
        steps=steps,
        loss=loss,
        examples_per_second=100.0,
        **more,
    )


def usage(number):
    return TaskUsage(at=0.0, memory_bytes=(number + 1) * 10**6, cpu_seconds=1.0)


def log(directory, events):
    """What a chief writes of some events."""
    file = TensorBoardLog(str(directory), float(next(CLOCK)))
    for event in events:
        file.tell(event)
    file.flush()


def curve(directory, run, tag):
    """Step and value of each point of a curve."""
    reader = EventAccumulator(str(directory / run), size_guidance={"tensors": 0})
    reader.Reload()
    return [
        (event.step, pytest.approx(float(event.tensor_proto.float_val[0])))
        for event in reader.Tensors(tag)
    ]


def tags(directory, run):
    reader = EventAccumulator(str(directory / run))
    reader.Reload()
    return set(reader.Tags()["tensors"])


def test_a_run_has_the_curves_that_keras_writes_and_its_own(tmp_path):
    shares = [(WorkerShare(1, 10, busy, idle),) for busy, idle in ((1.0, 0.0), (2.0, 3.0))]
    log(
        tmp_path,
        [
            RunBegan(at=next(CLOCK), config="smoke", mode="async", workers=1, ps=1),
            began(),
            sampled(10, 0.7, workers=shares[0]),
            sampled(30, 0.5, workers=shares[1], repeated=64, bad=1),
            sampled(30, 0.4),
            TaskLost(at=next(CLOCK), task="worker 0", what="gone"),
            TaskLost(at=next(CLOCK), task="worker 1", what="gone"),
            sampled(40, 0.4, judged={"auc": 0.75, "calibration": 1.5}),
            CheckpointSaved(
                at=next(CLOCK), name="c", examples=300, steps=30, saves=SAVES, staleness=STALE
            ),
            CheckpointSaved(at=next(CLOCK), name="c", examples=300, steps=30, saves=SAVES),
            TasksMeasured(at=next(CLOCK), tasks={f"ps {n}": usage(n) for n in range(3)}),
            TasksMeasured(at=next(CLOCK), tasks={"ps 0": usage(9)}),
            EpochTrained(
                at=next(CLOCK), epoch=0, steps=30, loss=0.6, learning_rate=0.1, steps_per_second=9.0
            ),
            Evaluated(
                at=next(CLOCK),
                epoch=1,
                steps=30,
                metrics={"loss": 0.55, "auc": 0.8},
                has_ended_epoch=True,
            ),
        ],
    )
    assert curve(tmp_path, TRAIN, "batch_loss") == [(10, 0.7), (30, 0.5), (40, 0.4)]
    assert curve(tmp_path, TRAIN, "batch_steps_per_second") == [(30, 20.0), (40, 10 / 4)]
    assert curve(tmp_path, TRAIN, "batch_auc") == [(40, 0.75)]
    assert curve(tmp_path, TRAIN, "batch_calibration") == [(40, 1.5)]
    assert curve(tmp_path, TRAIN, "epoch_loss") == [(0, 0.6)]
    assert curve(tmp_path, TRAIN, "epoch_learning_rate") == [(0, 0.1)]
    assert curve(tmp_path, TRAIN, "epoch_steps_per_second") == [(0, 9.0)]
    assert curve(tmp_path, TRAIN, "tfps/idle_share") == [(30, 0.75)]
    assert curve(tmp_path, TRAIN, "tfps/repeated_records") == [(10, 0), (30, 64), (40, 0)]
    assert curve(tmp_path, TRAIN, "tfps/lost_worker") == [(40, 2)]
    assert curve(tmp_path, TRAIN, "tfps/staleness") == [(30, 0.75)]
    assert curve(tmp_path, TRAIN, "tfps/touched_rows") == [(30, 7)]
    assert curve(tmp_path, TRAIN, "tfps/memory_bytes_ps") == [(40, 3e6)]
    assert curve(tmp_path, TRAIN, "tfps/checkpoint_write_seconds") == [(30, 0.5)]
    assert curve(tmp_path, VALIDATION, "epoch_auc") == [(0, 0.8)]
    assert curve(tmp_path, VALIDATION, "evaluation_loss_vs_iterations") == [(30, 0.55)]
    assert tags(tmp_path, VALIDATION) == {
        f"{each}" for name in ("loss", "auc") for each in (f"epoch_{name}", vs_iterations(name))
    }


def vs_iterations(name):
    return f"evaluation_{name}_vs_iterations"


def test_what_a_run_went_back_on_is_drawn_once(tmp_path):
    first = [began(), *(sampled(steps, 1.0 / steps) for steps in (10, 20, 30))]
    again = [began(steps=15, examples=150), sampled(20, 0.2), sampled(40, 0.1)]
    log(tmp_path, [*first, *again])  # a lost ps
    later = [began(steps=25, examples=250), sampled(40, 0.05)]
    log(tmp_path, later)  # another chief
    points = curve(tmp_path, TRAIN, "batch_loss")
    assert points == [(10, 0.1), (20, 0.2), (40, 0.05)]
    assert curve(tmp_path, TRAIN, "tfps/went_back_examples") == [(16, 150)]


def test_nothing_is_written_before_a_flush(tmp_path):
    file = TensorBoardLog(str(tmp_path), 1.0)
    file.tell(began())
    assert not list(tmp_path.iterdir())
    file.flush()
    assert {path.name for path in tmp_path.iterdir()} == {TRAIN, VALIDATION}


def test_what_the_ps_send_and_receive(tmp_path):
    def measured(at, *bytes_of_ps):
        usages = {
            f"ps {n}": TaskUsage(at, 1, 1.0, sent, received)
            for n, (sent, received) in enumerate(bytes_of_ps)
        }
        return TasksMeasured(at=at, tasks={**usages, "worker 0": TaskUsage(at, 1, 1.0, 9, 9)})

    log(
        tmp_path,
        [
            sampled(10, 0.5),
            measured(100.0, (1000, 100), (0, 0)),
            sampled(20, 0.5),
            measured(110.0, (3000, 200), (500, 50)),
            sampled(30, 0.5),
            measured(120.0, (10, 10), (600, 150)),  # the first has begun again
        ],
    )
    sent = curve(tmp_path, TRAIN, "tfps/ps_sent_bytes_per_second")
    assert sent == [(20, 250.0), (30, 10.0)]
    received = curve(tmp_path, TRAIN, "tfps/ps_received_bytes_per_second")
    assert received == [(20, 15.0), (30, 10.0)]


def test_how_parameters_and_gradients_are_spread(tmp_path):
    values = Histogram((-1.0, 0.0, 2.0), (3, 4), 5.0)
    gradients = Histogram((0.0, 0.5, 1.0), (1, 0), 0.25)
    event = ParametersMeasured(
        at=1.0,
        steps=20,
        epoch=1,
        parameters={"a/kernel": values},
        gradients={"a/kernel": gradients},
    )
    log(tmp_path, [sampled(10, 0.5), event])
    reader = EventAccumulator(str(tmp_path / TRAIN), size_guidance={"tensors": 0})
    reader.Reload()
    assert set(reader.PluginTagToContent("histograms")) == {
        "a/kernel/histogram",
        "a/kernel/gradient/histogram",
    }
    [point] = reader.Tensors("a/kernel/histogram")
    bins = [[-1.0, 0.0, 3.0], [0.0, 2.0, 4.0]]
    assert (point.step, tf.make_ndarray(point.tensor_proto).tolist()) == (20, bins)
    assert curve(tmp_path, TRAIN, "tfps/norm/a/kernel") == [(20, 5.0)]
    assert curve(tmp_path, TRAIN, "tfps/gradient_norm/a/kernel") == [(20, 0.25)]
