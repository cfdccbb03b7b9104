import time
import types

import pytest

from tests.polling import Polling
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.spec import Cluster
from tfps.errors import LostPsError, LostWorkersError, WorkersChangedError
from tfps.job_dir import JobDir, size
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.job_dir.size import Size
from tfps.job_dir.size_request import SizeRequest
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.worker.loop import SyncEvery
from trainer.chief.resizing import ResizedError, Resizing
from trainer.chief.state import ChiefState
from trainer.chief.wait_limits import WaitLimits

PS = TaskName("ps", 0)
LIMIT_SECONDS = 60


class Connection:
    """A cluster of which one worker is connected and others come."""

    workers, left_out = (TaskName("worker", 0),), (TaskName("worker", 1), TaskName("worker", 2))

    def __init__(self):
        self.arrived = []

    def arrivals(self):
        return self.arrived

    def can_do_without(self, workers):
        return True


@pytest.fixture(name="state")
def state_fixture(tmp_path, clock):
    """Of a chief whose workers have changed; training continues after 20 s."""
    addresses = {TaskName("worker", 0): "host:1"}
    monitor = TaskMonitor(addresses, Polling(addresses, lambda address: Liveness.REFUSES))
    job_dir = JobDir(tmp_path)
    state = ChiefState(
        limits=WaitLimits(),
        connector=Connection(),
        monitor=monitor,
        report=None,
        fence=ChiefFence.take_over(job_dir),
        interruption=types.SimpleNamespace(is_requested=False),
        notices=PreemptionNotices(job_dir, [PS]),
        resizing=Resizing(job_dir, Cluster(), 0),
        observer=None,
        sync_every=SyncEvery(1),
    )
    state.restart.changes.begin()
    state.trained(0)
    clock.now += 20
    state.trained(16)
    yield state
    monitor.stop()


def look(state):
    state._looked = 0.0
    state.poll()
    return state.is_asked_to_save


def test_who_comes_soon_after_a_change_is_part_of_the_next_one(state, clock, caplog):
    caplog.set_level("INFO")
    state.connector.arrived = [TaskName("worker", 1)]
    assert not look(state)
    assert caplog.messages[-1] == "worker 1 can join; in 80 s, with who comes or goes until then"
    clock.now += 79
    state.connector.arrived = [TaskName("worker", 1), TaskName("worker", 2)]
    assert not look(state)
    clock.now += 1
    assert look(state)
    with pytest.raises(WorkersChangedError, match=r"^worker 1, worker 2 can join$"):
        state.end_if_tasks_change()
    assert not state.is_asked_to_save
    state.end_if_tasks_change()


def test_a_change_is_made_at_once_where_nobody_trains(state):
    state.connector.arrived = [TaskName("worker", 1)]
    assert not look(state)
    state.monitor.start()
    deadline = time.monotonic() + LIMIT_SECONDS
    while not state.monitor.outages():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert look(state)


def test_others_join_at_once_where_all_workers_are_lost(state):
    state.connector.arrived = [TaskName("worker", 1)]
    state._looked = 0.0
    state.raise_if_nobody_trains()  # the worker has not been asked
    state.monitor.start()
    deadline = time.monotonic() + LIMIT_SECONDS
    while not state.monitor.lost("worker"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    state._looked = 0.0
    with pytest.raises(
        LostWorkersError, match=r"^worker 0 at host:1 are lost, and worker 1 can take over$"
    ):
        state.raise_if_nobody_trains()
    state.connector.arrived = []
    state.raise_if_nobody_trains()  # until the worker, or another one, is there


def test_work_that_keeps_nothing_does_not_begin_again_for_a_worker(state):
    state.monitor.start()
    state.interruption.raise_if_requested = lambda: None
    state.observer = types.SimpleNamespace(look_for_losses=lambda failures: None)
    state.connector.arrived = [TaskName("worker", 1)]
    deadline = time.monotonic() + LIMIT_SECONDS
    while not state.monitor.outages():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    state._looked = 0.0
    state.go_on_unless_tasks_change(keeps=False)
    state._looked = 0.0
    with pytest.raises(WorkersChangedError):
        state.go_on_unless_tasks_change(keeps=True)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_pass_ends_for_another_size_whatever_it_keeps(state, monkeypatch, keeps):
    monkeypatch.setenv(size.VARIABLE, "new_size.json")
    job_dir = state.resizing._request._path.rpartition("/")[0]
    state.resizing = Resizing(JobDir(job_dir), Cluster(("a:1",), ("b:1",), ("c:1",)), 0)
    state.interruption.raise_if_requested = lambda: None
    state.observer = types.SimpleNamespace(look_for_losses=lambda failures: None)
    state._looked = 0.0
    state.go_on_unless_tasks_change(keeps)
    request = SizeRequest(JobDir(job_dir))
    request.post(Size(3, 2))
    state._looked = 0.0
    with pytest.raises(ResizedError) as ended:
        state.go_on_unless_tasks_change(keeps)
    assert ended.value.size == Size(3, 2)
    assert request.read().is_taken


def test_a_ps_that_will_go_is_told_once_that_all_is_saved(state):
    assert not look(state)
    state.notices.post(PS)
    assert look(state)
    assert state.notices.is_posted(PS)
    with pytest.raises(LostPsError, match=f"^{PS} left$") as ended:
        state.end_if_tasks_change()
    assert ended.value.leaving == (PS.index,)
    assert not state.notices.is_posted(PS)
    assert not state.is_asked_to_save
    assert not look(state)


def test_whoever_was_told_looks_again_after_a_while_only(state):
    assert not look(state)
    state.notices.post(PS)
    state.poll()
    assert not state.is_asked_to_save


def test_a_chief_that_was_superseded_learns_it_when_it_looks(state, tmp_path):
    ChiefFence.take_over(JobDir(tmp_path))
    assert not state.is_asked_to_save
    with pytest.raises(SupersededError):
        look(state)
