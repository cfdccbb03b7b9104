import concurrent.futures
import logging

import pytest
import tensorflow as tf

from tests.training_fixtures import dataset, reused
from tfps.coordinator.lanes import LeasePrefetcher
from tfps.data.record_source import RecordSource
from tfps.leases.lease import Lease
from tfps.leases.progress import LaneProgress


class Asked:
    """An executor's side that is asked to open leases: notes what, and when told to, fails."""

    def __init__(self, error=None):
        self.calls, self._error = [], error

    def run_on(self, worker, function, args):
        source, first = args
        self.calls.append((worker, source.unpack().path.numpy().decode(), int(first)))
        future = concurrent.futures.Future()
        if self._error:
            future.set_exception(self._error)
        else:
            future.set_result(1)
        return future


def lease(path, steps=10, first=0):
    return Lease(0, 0, RecordSource(path), first, steps * 100, seed=0, batch_size=100)


def running(worker, steps):
    return LaneProgress(attempts=1, worker=worker, steps=steps, bad=0, loss_sum=0.0)


WAITING = LaneProgress(attempts=0, worker=-1, steps=0, bad=0, loss_sum=0.0)


@pytest.fixture(scope="module")
def closures(tmp_path_factory):
    data = dataset(tmp_path_factory.mktemp("data"), records=50, shards=1)
    trainer = reused(data)
    return trainer.closures, trainer.shards()[0][0]


def test_the_worker_that_ends_first_opens_the_first_waiting_lease(closures):
    executor = Asked()
    warmer = LeasePrefetcher(executor, closures[0])
    in_flight = {3: lease("gs://b/a"), 1: lease("gs://b/b"), 0: lease("gs://b/c", first=800)}
    in_flight[2] = lease("gs://b/d")
    rows = [WAITING, running(0, 2), WAITING, running(1, 7)]
    warmer.update(in_flight, rows, step_seconds=None)  # nothing is known yet
    warmer.update(in_flight, rows, step_seconds=1.0)  # 3 s and more are left
    assert executor.calls == []
    warmer.update(in_flight, rows, step_seconds=0.4)  # 1.2 s and 3.2 s
    assert executor.calls == [(1, "gs://b/c", 800)]
    rows[1] = running(0, 9)  # now the other one is to end first
    warmer.update(in_flight, rows, step_seconds=0.4)
    assert executor.calls[1:] == [(1, "gs://b/d", 0)]
    warmer.update(in_flight, rows, step_seconds=0.4)
    assert len(executor.calls) == 2  # once each
    in_flight[0] = lease("gs://b/e")  # a new lease in the lane
    del in_flight[2]
    warmer.update(in_flight, rows, step_seconds=0.4)
    assert executor.calls[2:] == [(0, "gs://b/e", 0)]


def test_a_lease_that_is_just_being_begun_has_no_worker_yet(closures):
    executor = Asked()
    warmer = LeasePrefetcher(executor, closures[0])
    begun = LaneProgress(attempts=1, worker=-1, steps=0, bad=0, loss_sum=0.0)
    in_flight = {0: lease("gs://b/a"), 1: lease("gs://b/b"), 2: lease("gs://b/c")}
    warmer.update(in_flight, [begun, WAITING, running(1, 9)], step_seconds=0.1)
    assert executor.calls == [(1, "gs://b/b", 0)]


def test_shards_on_local_disk_are_left_alone(closures):
    executor = Asked()
    warmer = LeasePrefetcher(executor, closures[0])
    in_flight = {0: lease("/data/a"), 1: lease("/data/b")}
    warmer.update(in_flight, [running(0, 9), WAITING], step_seconds=0.1)
    assert executor.calls == []


def test_a_failure_is_told_and_left_to_the_lease(closures, caplog):
    warmer = LeasePrefetcher(Asked(RuntimeError("no answer")), closures[0])
    in_flight = {0: lease("gs://b/a"), 1: lease("gs://b/b")}
    with caplog.at_level(logging.INFO, "tfps"):
        warmer.update(in_flight, [running(4, 9), WAITING], step_seconds=0.1)
    assert "gs://b/b" in caplog.text
    assert "could not be opened ahead on worker 4: no answer" in caplog.text


def test_opening_reads_one_record_where_the_lease_begins_and_never_fails(closures):
    made, source = closures
    assert int(made.open(source.pack(), tf.constant(0, tf.int64))) == 1
    gone = source._replace(path=source.path + ".gone")
    assert int(made.open(gone.pack(), tf.constant(0, tf.int64))) == 0
