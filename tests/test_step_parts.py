"""The parts of a step are what threads took, divided as their traced operations are."""

import os
import threading
import time

import pytest

from benchmarks import step_table, threads
from benchmarks.step_watch import Taken
from benchmarks.threads import Thread
from tfps.profiling.trace import Event, TaskTrace

PULL, PUSH = "while/tfps_pull/gather:GatherV2", "while/tfps_push/apply:ResourceApplyAdagrad"
NEXT = "IteratorGetNextOp::DoCompute"


def traced(**events):
    """A trace of threads by name: of each, names of what it did and how long each took."""
    lines = []
    for some in events.values():
        begin, line = 0.0, []
        for name, seconds in some:
            line.append(Event(begin, begin + seconds, name))
            begin += seconds
        lines.append(line)
    return TaskTrace(lines, [], [], [], thread_names=[f"{name}/17" for name in events])


def test_a_threads_time_is_divided_as_what_it_was_seen_to_do():
    trace = traced(tf_Compute=[(NEXT, 0.0), (NEXT, 0.0), (PULL, 0.002), (PUSH, 0.004)])
    took = {
        "tf_Compute": Thread("tf_Compute", 0.05, 70),
        "event_engine": Thread("event_engine", 0.02, 20),
        "task.py": Thread("task.py", 0.01, 10),
        "main": Thread("main", 0.01, 0),
    }
    found = step_table.columns({"worker-0": Taken(0.1, took, trace)}, steps=10)
    # 1 and 2 of the 5 ms that its threads took for each of 10 steps.
    parts = found["worker"]
    assert parts["pull: ids, rows, dense parameters"] == pytest.approx(1.0)
    assert parts["push: gradients, updates"] == pytest.approx(2.0)
    assert parts["between operations: scheduling, waking, unexplained"] == pytest.approx(2.0)
    assert parts["network: gRPC's event engine"] == pytest.approx(2.0)
    assert parts["network: completion queues"] == pytest.approx(1.0)
    assert parts["other threads"] == pytest.approx(1.0)
    assert parts["threads that ended unseen"] == pytest.approx(1.0)
    assert parts[step_table.ALL] == pytest.approx(10.0)
    assert parts[step_table.WOKEN] == pytest.approx(10.0)


def test_operations_that_waited_count_for_no_more_than_their_threads_took():
    trace = traced(tf_Compute=[(NEXT, 0.0), (PULL, 0.02), (PUSH, 0.06)])
    took = {"tf_Compute": Thread("tf_Compute", 0.4, 0)}
    found = step_table.columns({"ps-0": Taken(0.4, took, trace)}, steps=10)["ps"]
    assert found["pull: ids, rows, dense parameters"] == pytest.approx(10.0)
    assert found["push: gradients, updates"] == pytest.approx(30.0)
    assert found["between operations: scheduling, waking, unexplained"] == pytest.approx(0.0)


def test_the_workers_of_a_job_share_a_column_and_each_row_is_a_line():
    taken = {
        f"worker-{index}": Taken(0.1, {"main": Thread("main", 0.1, 5)}, traced(a=[(NEXT, 0.0)]))
        for index in range(2)
    }
    found = step_table.columns(taken, steps=100)
    assert found["worker"][step_table.ALL] == pytest.approx(2.0)
    told = step_table.lines(found).splitlines()
    assert len(told) == 1 + len(step_table.ROWS)
    assert told[-2].split() == ["all", "2.00"]


def test_the_threads_of_this_process_are_read():
    """One that computes is seen to take CPU time, one that sleeps to wait."""
    done = threading.Event()

    def compute():
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        done.wait(60)

    before = threads.read(os.getpid())
    busy = threading.Thread(target=compute)
    busy.start()
    while threads.between(before, threads.read(os.getpid()))[busy.native_id].cpu_seconds < 0.25:
        time.sleep(0.01)
    after = threads.between(before, threads.read(os.getpid()))
    assert after[os.getpid()].name == threads.MAIN
    assert after[os.getpid()].waits > 0
    assert threads.process_seconds(os.getpid()) >= after[busy.native_id].cpu_seconds
    summed = threads.by_name(after)
    assert sum(each.waits for each in summed.values()) == sum(x.waits for x in after.values())
    done.set()
    busy.join()
