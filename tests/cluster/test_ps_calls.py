import logging
import re
import threading
import time

import pytest

from tests.polling import Polling
from tfps.cluster import monitor
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.errors import LostPsError, RunError
from tfps.job_dir.task_name import TaskName


@pytest.fixture(name="hanging")
def hanging_fixture():
    """A call that does not return before the test is over."""
    is_over = threading.Event()
    yield is_over.wait
    is_over.set()


def test_a_call_returns_and_raises_what_the_function_does():
    calls = PsCalls(TaskMonitor({}), 60.0)
    assert calls("adding", lambda: 1 + 1) == 2
    with pytest.raises(KeyError):
        calls("looking", lambda: {}["it"])
    with pytest.raises(TimeoutError):
        calls("failing", lambda: (_ for _ in ()).throw(TimeoutError()).__next__())
    assert calls("adding", lambda: 2 + 2) == 4


def test_a_call_is_left_alone_when_its_ps_is_lost(hanging, monkeypatch):
    monkeypatch.setattr(monitor, "LOST_SECONDS", 0.1)
    addresses = {TaskName("ps", 1): "host:1"}
    watch = TaskMonitor(addresses, Polling(addresses, lambda address: Liveness.REFUSES))
    watch.start()
    try:
        with pytest.raises(LostPsError, match="ps 1 at host:1 was lost"):
            PsCalls(watch, 60.0)("saving a checkpoint", hanging)
    finally:
        watch.stop()


def test_a_call_has_a_limit(hanging):
    began = time.monotonic()
    with pytest.raises(RunError, match="saving a checkpoint has taken 1 s and is not done"):
        PsCalls(TaskMonitor({}), 1.0)("saving a checkpoint", hanging)
    assert time.monotonic() - began < 30


def test_a_call_that_takes_long_is_told_of(caplog):
    is_told = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record):
            is_told.set()

    log, handler = logging.getLogger("tfps.cluster.ps_calls"), Handler()
    log.addHandler(handler)
    try:
        assert PsCalls(TaskMonitor({}), 20.0)("reading progress", lambda: is_told.wait(20))
    finally:
        log.removeHandler(handler)
    [told] = caplog.messages
    assert re.fullmatch(
        r"reading progress has taken \d+ s so far; the ps are waited for, up to 20 s", told
    )


def test_a_call_that_moves_bytes_may_take_longer(hanging):
    calls = PsCalls(TaskMonitor({}), 0.5)
    with pytest.raises(RunError, match="saving a checkpoint has taken 2 s and is not done"):
        calls("saving a checkpoint", hanging, 15_000_000)


def test_the_chief_works_while_a_call_lasts():
    """Not after it: the call ends when what is done meanwhile has begun."""
    has_begun = threading.Event()
    calls = PsCalls(TaskMonitor({}), 60.0)
    assert calls("restoring", lambda: has_begun.wait(60.0), meanwhile=has_begun.set)
