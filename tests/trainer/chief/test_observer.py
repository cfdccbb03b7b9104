"""What the chief sees becomes events, each once."""

import types

import pytest

from tfps.checkpoint.checkpoint import TrainedEpoch, TrainingLosses
from tfps.cluster.monitor import Failure, Failures
from tfps.coordinator.coordinator import TrainingMeter
from tfps.evaluation.history import Evaluation
from tfps.job_dir.report import SaveCounts, StalenessCounts
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import CheckpointSaved, EpochTrained, Evaluated
from trainer.chief.observer import RunObserver


def observer(past=(), sample_seconds=0.0):
    """An observer, and what it tells."""
    told = []
    recorder = types.SimpleNamespace(tell=told.append, close=lambda: None)
    return RunObserver(recorder, None, past, sample_seconds), told


def queue(epoch=0, trained=0):
    return types.SimpleNamespace(epoch=epoch, trained=trained, repeated=3, bad=1)


def checkpoint(steps, *epochs):
    state = types.SimpleNamespace(trained=10 * steps)
    name = f"checkpoint-{steps}"
    return types.SimpleNamespace(
        path=f"job/{name}", name=name, steps=steps, queue=state, losses=TrainingLosses(epochs)
    )


def evaluation(steps, epoch, cursor=0):
    name = f"{steps:012d}-{epoch:06d}-{cursor:012d}"
    return Evaluation(name, steps, epoch, 10, {"loss": 0.5}, 1.0, {})


def measured(meter, state, examples, loss_sum):
    """A meter that has seen these records, and this loss, of leases in flight."""
    meter.measure(state, examples, loss_sum)
    return meter


def test_a_sample_has_the_mean_loss_since_the_last_one():
    seen, told = observer()
    meter = TrainingMeter([0])
    meter.begin(queue())
    seen._sample_seconds = 1e9
    seen.progressed(measured(meter, queue(), 10, 20.0), queue(), lambda: 1)
    seen.progressed(measured(meter, queue(), 10, 20.0), queue(), lambda: 1)
    assert meter.loss == 2.0
    seen._sample_seconds = 0.0
    seen.progressed(measured(meter, queue(), 40, 50.0), queue(), lambda: 4)
    assert meter.loss == 1.0
    seen.progressed(measured(meter, queue(1), 40, 50.0), queue(1), lambda: 4)
    first, second = told
    assert (first.examples, first.steps, first.repeated, first.bad) == (40, 4, 3, 1)
    assert first.loss == pytest.approx((10 * 2.0 + 30 * 1.0) / 40)
    assert (second.epoch, second.loss, second.examples_per_second) == (1, None, 0.0)


def test_what_was_trained_before_a_resume_is_in_no_sample():
    meter = TrainingMeter([0])
    meter.begin(queue(1, 500))
    assert meter.since_sample()[0] == 0
    sample = measured(meter, queue(1, 500), 10, 5.0).sample(queue(1, 500), 51)
    assert (sample.examples, sample.loss) == (510, 0.5)
    assert 0 < sample.examples_per_second < 1e9


def test_a_short_run_has_a_sample_too():
    seen, told = observer(sample_seconds=1e9)
    meter = TrainingMeter([0])
    seen.paused(meter, queue(), lambda: 0)
    meter.begin(queue())
    seen.paused(meter, queue(), lambda: 0)
    seen.progressed(measured(meter, queue(), 10, 20.0), queue(), lambda: 1)
    for _ in range(2):
        seen.paused(meter, queue(), lambda: 1)
    (sample,) = told
    assert (sample.examples, sample.steps, sample.loss) == (10, 1, 2.0)


def test_epochs_are_told_once_they_are_in_a_checkpoint():
    seen, told = observer()
    seen.training_began(None, queue())
    first, second = TrainedEpoch(0, 10, 0.5, 2.0), TrainedEpoch(1, 40, 0.4)
    for saved in (checkpoint(5), checkpoint(10, first), checkpoint(40, first, second)):
        seen.saved(saved, SaveCounts(), StalenessCounts(), lambda steps: steps / 100)
    epochs = [event for event in told if isinstance(event, EpochTrained)]
    assert [(x.epoch, x.steps, x.loss) for x in epochs] == [(0, 10, 0.5), (1, 40, 0.4)]
    assert [x.learning_rate for x in epochs] == [0.1, 0.4]
    assert [x.steps_per_second for x in epochs] == [5.0, None]
    assert [x.examples for x in told if isinstance(x, CheckpointSaved)] == [50, 100, 400]


def test_another_chief_tells_only_what_is_new_or_was_given_up():
    seen, past = observer()
    seen.training_began(None, queue())
    first, second = TrainedEpoch(0, 10, 0.5), TrainedEpoch(1, 20, 0.4)
    seen.saved(checkpoint(20, first, second), SaveCounts(), StalenessCounts(), lambda steps: None)
    seen.evaluated([evaluation(10, 1), evaluation(15, 1, 50), evaluation(20, 2)])
    again, told = observer(past)
    again.training_began(checkpoint(15), queue(1, 150))  # the last checkpoint was damaged
    again.evaluated([evaluation(10, 1), evaluation(15, 1, 50)])
    again.saved(checkpoint(20, first, second), SaveCounts(), StalenessCounts(), lambda steps: None)
    again.evaluated([evaluation(10, 1), evaluation(15, 1, 50), evaluation(20, 2)])
    assert [x.epoch for x in told if isinstance(x, EpochTrained)] == [1]
    evaluated = [x for x in told if isinstance(x, Evaluated)]
    assert [(x.steps, x.has_ended_epoch) for x in evaluated] == [(20, True)]
    assert [x.has_ended_epoch for x in past if isinstance(x, Evaluated)] == [True, False, True]


def test_losses_of_tasks_and_their_ends_are_told_when_they_were():
    seen, told = observer()
    failures = Failures([Failure(TaskName("ps", 0), "of before", 1.0)], {"ps": 1})
    seen.look_for_losses(failures)
    failures.append(lost := Failure(TaskName("worker", 1), "refused", 100.0))
    for _ in range(2):
        seen.look_for_losses(failures)
    lost.back_after = 2.5
    for _ in range(2):
        seen.look_for_losses(failures)
    assert [(type(x).kind, x.task, x.at) for x in told] == [
        ("lost", "ps 0", 1.0),
        ("lost", "worker 1", 100.0),
        ("back", "worker 1", 102.5),
    ]
    again, told_again = observer(told)
    again.look_for_losses(failures)  # which a chief hands over when it begins again
    assert told_again == []
