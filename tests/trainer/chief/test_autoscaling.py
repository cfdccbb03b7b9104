"""Which size a run tries next, and where it stays."""

import math
import random

import pytest

from tfps.coordinator.coordinator import Throughput
from tfps.errors import UserError
from tfps.job_dir.size import Size
from tfps.monitoring.events import RunBegan, SpeedMeasured
from tfps.planner.throughput import Machine, Machines, StepCosts, forecast
from trainer.chief.autoscaling import Autoscaling, Kind, Tried
from trainer.chief.size_search import next_size, next_workers
from trainer.chief.wait_limits import Autoscale

LIMITS = Autoscale(1, 32, 60.0)
KIND = Kind("async", "512")


def climbed(speed, least, most, first):
    """The numbers that are tried, the last of which the run keeps."""
    speeds, tried = {}, [first]
    while True:
        speeds.setdefault(tried[-1], speed(tried[-1]))
        number = next_workers(speeds, least, most)
        if number == tried[-1]:
            return tried
        tried.append(number)
        assert len(tried) < 20, tried


@pytest.mark.parametrize("first", [1, 3, 8, 20])
@pytest.mark.parametrize("cores", [1, 2, 3.5, 5, 7, 12])
def test_it_ends_where_cores_end(cores, first):
    tried = climbed(lambda workers: min(workers, cores), 1, 20, first)
    assert abs(tried[-1] - cores) <= 1
    assert len(tried) < 12


@pytest.mark.parametrize("seed", range(20))
def test_it_ends_within_one_of_what_a_search_of_all_finds(seed):
    draw = random.Random(seed)
    knee, sharp = draw.uniform(1, 20), draw.uniform(2, 8)

    def speed(workers):  # what workers bring falls from 1 to 0 about the knee
        return sum(1 / (1 + (each / knee) ** sharp) for each in range(1, workers + 1))

    best = max(n for n in range(1, 33) if speed(n) - speed(n - 1) >= 0.4 * speed(1))
    ended = climbed(speed, 1, 32, draw.randint(1, 32))[-1]
    assert abs(ended - best) <= 1 or abs(speed(ended) - speed(best)) < speed(1)


def sizes_tried(speed, limits, first):
    speeds, tried = {}, [first]
    while True:
        speeds.setdefault(tried[-1], speed(tried[-1]))
        size = next_size(speeds, tried[-1], limits)
        if size == tried[-1]:
            return tried
        tried.append(size)
        assert len(tried) < 25, tried


def bound_by_ps(ps_cpu):
    """The speed of machines of their own, where a step takes so much of the ps."""
    costs = StepCosts(1, 1.0, ps_cpu, 0.001, 0, 0, own_seconds=1.0)
    machine = Machine(1.0)
    return lambda size: (
        forecast(costs, size, Machines(machine, machine, machine)).examples_per_second
    )


@pytest.mark.parametrize("ps_cpu", [0.02, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("first", [Size(1, 1), Size(4, 1), Size(2, 2)])
def test_more_ps_come_where_they_are_what_bounds(ps_cpu, first):
    """What one worker or ps more or less would bring is what it is worth, or is not."""
    speed = bound_by_ps(ps_cpu)
    limits = Autoscale(1, 16, 60.0, 8)
    workers, ps = sizes_tried(speed, limits, first)[-1]
    each = speed(Size(1, 1))
    assert ps_cpu > 0.05 or ps == first.ps
    if ps > first.ps:
        fewer = Size(workers, ps - 1)
        assert speed(Size(workers, ps)) - speed(fewer) > 0.2 * each
    if ps < 8:
        assert speed(Size(workers, ps + 1)) - speed(Size(workers, ps)) < 0.6 * each
    alone = sizes_tried(speed, Autoscale(1, 16, 60.0), Size(1, first.ps))[-1]
    assert workers >= alone.workers or ps == first.ps


def test_ps_stay_where_they_bring_nothing_or_may_not_be_more():
    wanted = bound_by_ps(0.5)
    assert {size.ps for size in sizes_tried(wanted, Autoscale(1, 16, 60.0), Size(1, 1))} == {1}
    tried = sizes_tried(lambda size: min(size.workers, 4), Autoscale(1, 16, 60.0, 8), Size(1, 1))
    assert tried[-2:] == [Size(5, 2), Size(4, 1)]
    tried = sizes_tried(lambda size: size.workers, Autoscale(1, 16, 60.0, 8), Size(1, 1))
    workers = [Size(number, 1) for number in (1, 2, 4, 8, 16)]
    assert tried == [*workers, Size(16, 2), Size(16, 1)]


def test_a_number_of_ps_with_which_the_run_could_not_begin_is_not_tried_again():
    limits = Autoscale(1, 4, 60.0, 8)
    past = [
        *(began(1), measured(1, 100.0, 2), began(2), measured(2, 190.0, 4)),
        *(began(4), measured(4, 360.0, 4, chosen_ps=2), began(4, ps=2)),
        *(measured(4, 420.0, 4, ps=2, chosen_ps=4), began(4, ps=4), began(4, ps=2)),
    ]
    tried = Tried.of(past, KIND, Size(4, 2))
    assert tried.refused == {Size(4, 4)}
    assert tried.next(Size(4, 2), limits, 0) == Size(4, 3)
    assert Tried(tried.speeds, set()).next(Size(4, 2), limits, 0) == Size(4, 4)
    assert Tried(tried.speeds, {Size(4, 1)}).next(Size(4, 2), limits, 0).ps >= 2


def test_it_stays_within_its_limits():
    assert climbed(lambda workers: workers, 2, 6, 2) == [2, 4, 6]
    assert climbed(lambda workers: 1.0, 2, 6, 6)[-1] == 2
    assert climbed(lambda workers: workers, 2, 6, 9)[-1] == 6  # that begins outside
    assert climbed(lambda workers: workers, 4, 6, 1)[-1] == 6


def began(workers, **other):
    fields = {"ps": 1, "mode": "async", "settings": {"train.batch_size": "512"}, **other}
    return RunBegan(at=1.0, config="c", workers=workers, **fields)


def measured(workers, speed, chosen, is_other=False, ps=1, chosen_ps=1):
    return SpeedMeasured(
        at=2.0,
        workers=workers,
        examples_per_second=speed,
        chosen=chosen,
        is_other=is_other,
        ps=ps,
        chosen_ps=chosen_ps,
    )


def scaling(workers, *past, limits=LIMITS, others=0, told=None, ps=1):
    tell, size = [] if told is None else told, Size(workers, ps)
    return Autoscaling(limits, size, Tried.of(past, KIND, size), tell.append, others)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Run:
    """A run whose workers make 100 examples a second each, as far as its cores go."""

    def __init__(self, scaling, workers, cores=math.inf):
        self.scaling, self.clock, self.examples = scaling, Clock(), 1
        self.speed = 100 * min(workers, cores)
        self.throughput = Throughput(self.clock)
        self.throughput.begin(0)
        self.throughput.update(1)
        scaling.begin(self.throughput)

    def after(self, seconds, is_whole=True):
        self.clock.now += seconds
        self.examples += round(self.speed * seconds)
        self.throughput.update(self.examples)
        return self.scaling.wanted(is_whole).workers


def test_a_number_is_measured_before_another_is_tried():
    told = []
    run = Run(scaling(2, told=told), 2)
    assert [run.after(9.0), run.after(2.0), run.after(59.0), run.after(2.0)] == [2, 2, 2, 4]
    assert [run.after(1.0), run.after(1.0, is_whole=False)] == [4, 4]  # until the run has ended
    [event] = told
    assert (event.workers, event.chosen, event.is_other) == (2, 4, False)
    assert event.examples_per_second == pytest.approx(200, rel=0.01)


def test_what_was_measured_while_a_task_was_away_does_not_count():
    run = Run(scaling(2), 2)
    assert [run.after(30.0), run.after(59.0), run.after(1.0, is_whole=False)] == [2, 2, 2]
    assert [run.after(59.0), run.after(1.0)] == [2, 4]


def test_what_earlier_runs_measured_counts():
    past = [began(1), measured(1, 100.0, 2), began(2)]
    run = Run(scaling(2, *past), 2, cores=1)  # both make as much
    assert [run.after(11.0), run.after(60.0)] == [2, 1]


@pytest.mark.parametrize("other", [{"mode": "sync"}, {"settings": {}}])
def test_what_runs_of_another_kind_measured_does_not_count(other):
    past = [began(1, **other), measured(1, 100.0, 2), began(2)]
    run = Run(scaling(2, *past), 2, cores=1)
    assert [run.after(11.0), run.after(60.0)] == [2, 4]  # it does not know that 1 makes as much
    assert Tried.of(past, KIND, Size(2, 1)).speeds == {}
    assert Tried.of([*past[:2], began(1), measured(1, 70.0, 2)], KIND, Size(2, 1)).speeds == {
        Size(1, 1): 70.0
    }


def test_a_number_with_which_the_run_could_not_begin_is_not_tried_again():
    past = [began(4), measured(4, 400.0, 8), began(8), began(4)]
    assert Tried.of(past, KIND, Size(4, 1)).refused == {Size(8, 1)}
    told = []
    run = Run(scaling(4, *past, told=told), 4)
    assert [run.after(11.0), run.after(60.0)] == [4, 7]
    assert Tried.of([*past, *told, began(7)], KIND, Size(7, 1)).refused == {Size(8, 1)}
    both = Tried.of([*past, *told, began(7), began(4)], KIND, Size(4, 1)).refused
    assert both == {Size(7, 1), Size(8, 1)}
    settled = [*past, *told, measured(7, 700.0, 7)]
    assert Tried.of(settled, KIND, Size(7, 1)).refused == {Size(8, 1)}
    run = Run(scaling(7, *settled), 7)
    assert [run.after(11.0), run.after(60.0)] == [7, 7]


def test_the_chief_trains_too_where_there_are_no_ps():
    tried, now = [1], {}
    while True:
        now.setdefault(tried[-1], 100.0 * (tried[-1] + 1))
        past = [measured(number, speed, number) for number, speed in now.items()]
        run = Run(scaling(tried[-1], *past, limits=Autoscale(1, 15, 60.0), others=1), tried[-1])
        run.speed = now[tried[-1]]
        run.after(11.0)
        if (number := run.after(60.0)) == tried[-1]:
            break
        tried.append(number)
    assert tried == [1, 3, 7, 15]


def test_a_new_connection_counts_from_0():
    run = Run(scaling(2), 2)
    assert [run.after(11.0), run.after(50.0)] == [2, 2]
    again = Run(run.scaling, 2)
    assert [again.after(5.0), again.after(6.0), again.after(59.0), again.after(2.0)] == [2, 2, 2, 4]


def test_a_run_that_makes_nothing_is_not_measured():
    run = Run(scaling(1, measured(2, 5.0, 1)), 1)
    run.after(11.0)
    run.speed = 0
    assert [run.after(60.0), run.after(60.0)] == [1, 1]


def test_another_speed_begins_the_search_again(caplog):
    told = []
    past = [measured(1, 100.0, 2), measured(2, 101.0, 1)]
    run = Run(scaling(1, *past, told=told), 1)
    assert [run.after(11.0), run.after(60.0), run.after(60.0)] == [1, 1, 1]
    assert told == []
    run.speed = 200
    with caplog.at_level("INFO"):
        assert run.after(60.0) == 2
    assert "200 examples/s with 1 worker, not 100 as before" in caplog.text
    assert [event.is_other for event in told] == [True]
    assert Tried.of([*past, *told], KIND, Size(2, 1)).speeds == {Size(1, 1): pytest.approx(200)}


@pytest.mark.parametrize(
    "text", ["", "2", "2:", "0:3", "3:3", "4:2", "a:b", "1:2:3", "-1:2", "1:2,", "2:2,4"]
)
def test_limits_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="write MIN:MAX workers, such as 2:8"):
        Autoscale.parse(text, 60.0)
