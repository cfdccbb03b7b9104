"""What is learnt of a run's history."""

import dataclasses
import math

import pytest

from tests.planner.histories import CPU, RATE, SENT, TABLE_BYTES, run_of
from tfps.errors import UserError
from tfps.job_dir.size import Size
from tfps.planner import bound_text, cheapest
from tfps.planner.measured_run import MeasuredRun, TooShortError
from tfps.planner.throughput import CORES, Machine, Machines


def test_a_step_takes_what_its_tasks_reported():
    run = MeasuredRun.of(run_of(workers=2, ps=2))
    steps = RATE / 512
    assert run.size == Size(2, 2)
    assert run.examples_per_second == pytest.approx(RATE)
    costs = run.costs
    assert costs.examples == 512
    assert costs.worker_cpu == pytest.approx(2 * CPU["worker"] / steps)
    assert costs.ps_cpu == pytest.approx(2 * CPU["ps"] / steps)
    assert costs.chief_cpu == pytest.approx(CPU["chief"] / steps)
    assert costs.pulled_bytes == pytest.approx(2 * SENT / steps)
    assert costs.pushed_bytes == pytest.approx(SENT / steps)
    assert run.machines == Machines.shared(Machine(2.0, math.inf))
    assert run.forecast(run.size).examples_per_second == pytest.approx(RATE, rel=1e-6)
    assert run.forecast(run.size).busy[CORES] == pytest.approx((2 * 0.6 + 2 * 0.3 + 0.05) / 2)
    assert run.staleness == 1.5
    assert (run.epochs, run.in_background) == (3, True)


def test_an_evaluation_is_no_part_of_a_step():
    run = MeasuredRun.of(run_of(seconds=240, pause=(100, 118)))
    assert run.examples_per_second == pytest.approx(RATE)
    assert run.costs.worker_cpu == pytest.approx(2 * CPU["worker"] / (RATE / 512))


def test_a_task_that_began_again_counts_from_there():
    events = run_of(seconds=240)
    again = []
    for event in events:
        if event.kind == "tasks" and event.at > events[0].at + 125:
            usage = event.tasks["worker 1"]
            fewer = dataclasses.replace(usage, cpu_seconds=usage.cpu_seconds - 70.0)
            event = dataclasses.replace(event, tasks={**event.tasks, "worker 1": fewer})
        again.append(event)
    run = MeasuredRun.of(again)
    assert run.costs.worker_cpu == pytest.approx(2 * CPU["worker"] / (RATE / 512))


def test_machines_are_those_of_the_tasks():
    hosts = {"chief 0": "a", "worker 0": "b", "worker 1": "c", "ps 0": "d"}
    run = MeasuredRun.of(run_of(hosts=hosts, cpus=8.0), network=1e9)
    assert run.machines == Machines(Machine(8.0, 1e9), Machine(8.0, 1e9), Machine(8.0, 1e9))
    two = {"chief 0": "a", "worker 0": "a", "worker 1": "b", "ps 0": "b"}
    run = MeasuredRun.of(run_of(hosts=two, cpus=8.0))
    assert run.machines.worker == Machine(4.0)
    assert not run.machines.are_one


def test_the_newest_run_that_is_long_enough_is_taken():
    events = [*run_of(workers=3), *run_of(workers=1, seconds=20)]
    assert MeasuredRun.of(events).size == Size(3, 1)
    with pytest.raises(TooShortError):
        MeasuredRun.of(run_of(seconds=50))
    with pytest.raises(TooShortError):
        MeasuredRun.of([])


def test_reports_of_before_do_not_say_enough():
    with pytest.raises(TooShortError):
        MeasuredRun.of(run_of(cpus=0.0))


@pytest.mark.parametrize("role", ["chief", "worker", "ps"])
def test_a_role_without_reports_leaves_too_little(role):
    events = [
        dataclasses.replace(
            each, tasks={name: x for name, x in each.tasks.items() if not name.startswith(role)}
        )
        if each.kind == "tasks"
        else each
        for each in run_of()
    ]
    with pytest.raises(TooShortError):
        MeasuredRun.of(events)


def test_a_run_that_seldom_trains_anything_says_too_little():
    events = [
        dataclasses.replace(each, examples=0) if each.kind == "sample" else each
        for each in run_of()
    ]
    with pytest.raises(TooShortError):
        MeasuredRun.of(events)


def test_a_run_without_ps_is_refused():
    with pytest.raises(UserError, match="a run in mode allreduce has no ps"):
        MeasuredRun.of(run_of(ps=0, mode="allreduce"))


def test_staleness_grows_with_the_workers():
    run = MeasuredRun.of(run_of(workers=4))
    assert run.staleness_of(Size(1, 1)) == 0
    assert run.staleness_of(Size(7, 1)) == pytest.approx(3.0)
    alone = MeasuredRun.of(run_of(workers=1))
    assert alone.staleness_of(Size(3, 1)) == 2.0
    rounds = MeasuredRun.of(run_of(workers=4, mode="sync"))
    assert rounds.staleness_of(Size(7, 1)) == 0


def test_a_ps_holds_its_part_of_the_tables_and_of_a_save():
    run = MeasuredRun.of(run_of(ps=1))
    whole, half = cheapest.ps_bytes(run, 1), cheapest.ps_bytes(run, 2)
    assert whole - half == TABLE_BYTES
    assert whole > (700 << 20) + 2 * TABLE_BYTES  # a save needs memory for a moment


def test_the_sentence_says_what_bounds_and_what_more_would_give():
    busy = MeasuredRun.of(run_of(workers=3))
    text = bound_text.sentence(busy)
    assert text.startswith("The cores of their machine, busy 100% of the time: that bounds 3 ")
    assert "at 20,000 examples/s. One more worker would give about " in text
    assert text.endswith("fewer")
    waiting = MeasuredRun.of(run_of(workers=1, cpus=64.0))
    assert bound_text.sentence(waiting).startswith("The workers' own steps: that bounds 1 worker")
