"""Which number of workers a run tries next, and where it stays."""

import math
import random

import pytest

from tests.planner.histories import RATE, run_of
from tfps.coordinator.coordinator import Throughput
from tfps.errors import UserError
from trainer.chief.autoscaling import Autoscaling, next_workers
from trainer.chief.wait_limits import Autoscale

LIMITS = Autoscale(1, 32, 60.0)


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


def test_it_stays_within_its_limits():
    assert climbed(lambda workers: workers, 2, 6, 2) == [2, 4, 6]
    assert climbed(lambda workers: 1.0, 2, 6, 6)[-1] == 2
    assert climbed(lambda workers: workers, 2, 6, 9)[-1] == 6  # that begins outside
    assert climbed(lambda workers: workers, 4, 6, 1)[-1] == 6


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

    def after(self, seconds, is_whole=True):
        self.clock.now += seconds
        self.examples += round(self.speed * seconds)
        self.throughput.update(self.examples)
        return self.scaling.wanted(self.throughput, is_whole)


def test_a_number_is_measured_before_another_is_tried():
    run = Run(Autoscaling(LIMITS, 2, []), 2)
    assert [run.after(9.0), run.after(2.0), run.after(59.0), run.after(2.0)] == [2, 2, 2, 4]
    assert [run.after(1.0), run.after(1.0, is_whole=False)] == [4, 4]  # until the run has ended


def test_what_was_measured_while_a_task_was_away_does_not_count():
    run = Run(Autoscaling(LIMITS, 2, []), 2)
    assert [run.after(30.0), run.after(59.0), run.after(1.0, is_whole=False)] == [2, 2, 2]
    assert [run.after(59.0), run.after(1.0)] == [2, 4]


def test_runs_of_before_say_how_fast_other_numbers_were():
    past = [*run_of(workers=1), *run_of(workers=2)]  # both make as much
    scaling = Autoscaling(LIMITS, 2, past)
    run = Run(scaling, 2)
    run.speed = RATE
    assert [run.after(11.0), run.after(60.0)] == [2, 1]
    short = Autoscaling(LIMITS, 2, run_of(workers=1, seconds=40))
    assert Run(short, 2).after(11.0) == 2


def test_another_speed_begins_the_search_again(caplog):
    past = [*run_of(workers=1), *run_of(workers=2)]
    run = Run(Autoscaling(LIMITS, 1, past), 1)
    run.speed = RATE
    assert [run.after(11.0), run.after(60.0), run.after(60.0)] == [1, 1, 1]
    run.speed = 2 * RATE
    with caplog.at_level("INFO"):
        assert run.after(60.0) == 2
    assert "40000 examples/s with 1 worker, not 20000 as before" in caplog.text


@pytest.mark.parametrize("text", ["", "2", "2:", "0:3", "3:3", "4:2", "a:b", "1:2:3", "-1:2"])
def test_limits_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="write MIN:MAX workers, such as 2:8"):
        Autoscale.parse(text, 60.0)
