"""Those who watch a run are told, and cannot hold it up."""

import itertools
import logging
import threading

from tfps.monitoring.events import RunEnded, TaskLost
from tfps.monitoring.recorder import RunRecorder
from tfps.storage.failures import StorageError

PATIENCE = 60


class Watcher:
    """Keeps what it is told; a flush may fail, or wait for a gate."""

    name = "the diary"

    def __init__(self, failures=0):
        self.told, self.written = [], []
        self.flushed, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self._failures = failures

    def tell(self, event):
        self.told.append(event)

    def flush(self):
        assert self.gate.wait(PATIENCE)
        self.flushed.set()
        if self._failures:
            self._failures -= 1
            raise StorageError("the disk is full", may_pass=True)
        self.written = list(self.told)


def event(at):
    return RunEnded(at=at, status="finished")


def test_all_is_written_in_order_by_the_end():
    watchers = [Watcher(), Watcher()]
    recorder = RunRecorder(watchers)
    for at in range(100):
        recorder.tell(event(at))
    recorder.close()
    assert all(x.written == [event(at) for at in range(100)] for x in watchers)


def test_it_is_written_while_the_run_goes_on():
    watcher = Watcher()
    recorder = RunRecorder([watcher], flush_seconds=0.01)
    recorder.tell(event(1))
    while not watcher.written:
        assert watcher.flushed.wait(PATIENCE)
    recorder.close()


def test_a_watcher_that_fails_is_told_of_once_and_holds_up_nobody(caplog):
    failing, other = Watcher(failures=3), Watcher()
    with caplog.at_level(logging.WARNING):
        recorder = RunRecorder([failing, other], [lambda: [event(0)]], flush_seconds=0.01)
        recorder.tell(event(1))
        while not failing.written:
            assert failing.flushed.wait(PATIENCE)
        recorder.close()
    assert event(1) in failing.written
    assert failing.written == other.written
    assert caplog.text.count("the diary of the run cannot be written for now: the disk") == 1


def test_one_that_has_a_defect_does_not_end_what_others_see(caplog):
    class Defect(Watcher):
        def tell(self, event):
            raise ValueError("a defect")

    def source():
        raise OSError(24, "Too many open files")

    other = Watcher()
    with caplog.at_level(logging.WARNING):
        recorder = RunRecorder([Defect(), other], [source], flush_seconds=0.01)
        recorder.tell(event(1))
        recorder.tell(event(2))
        recorder.close()
    assert other.written == [event(1), event(2)]
    assert "the diary of the run cannot be written for now: a defect" in caplog.text
    assert "what tasks take of the run cannot be written for now: " in caplog.text


def test_a_slow_one_does_not_hold_up_whoever_tells():
    watcher = Watcher()
    watcher.gate.clear()
    recorder = RunRecorder([watcher], flush_seconds=0.0)
    for at in range(10):
        recorder.tell(event(at))
    watcher.gate.set()
    recorder.close()
    assert watcher.written == [event(at) for at in range(10)]


def test_sources_are_asked_before_each_flush():
    watcher, numbers = Watcher(), itertools.count()
    recorder = RunRecorder([watcher], [lambda: [event(next(numbers))]], flush_seconds=0.01)
    while len(watcher.written) < 3:
        assert watcher.flushed.wait(PATIENCE)
    recorder.close()
    assert watcher.written == [event(at) for at in range(len(watcher.written))]


def test_what_only_this_chief_has_seen_is_written_soon():
    watcher = Watcher()
    recorder = RunRecorder([watcher], flush_seconds=1e6)
    recorder.tell(event(1.0))
    recorder.tell(TaskLost(at=2.0, task="ps 0", what="its port refused connections"))
    assert watcher.flushed.wait(PATIENCE)
    recorder.close()
    assert [each.at for each in watcher.written] == [1.0, 2.0]
