"""How a task has spent its time."""

import pytest

from tfps.profiling.shares import Activity, shares_of, span_of
from tfps.profiling.trace import Arrival, Event, Sending, TaskTrace

STEP = "while/body/while"
PULL, COMPUTE, PUSH = (f"{STEP}/tfps_{part}" for part in ("pull", "compute", "push"))
NEXT = "IteratorGetNextOp::DoCompute"


def traced(*threads, devices=(), arrivals=(), sendings=()):
    return TaskTrace(
        threads=[[Event(*event) for event in thread] for thread in threads],
        devices=[[Event(*event) for event in stream] for stream in devices],
        arrivals=[Arrival(*arrival) for arrival in arrivals],
        sendings=[Sending(*sending) for sending in sendings],
    )


def test_of_what_is_done_at_once_the_first_counts():
    trace = traced(
        [(0.0, 4.0, NEXT), (4.0, 5.0, f"{PULL}/Gather:ResourceGather")],
        [(2.0, 3.0, f"{COMPUTE}/MatMul:MatMul"), (4.5, 7.0, f"{PUSH}/split:Split")],
        [(0.0, 10.0, "EagerExecute"), (0.0, 9.0, "Iterator::Root::Prefetch::TFRecordV2")],
        [(7.5, 8.0, f"{STEP}/add:AddV2"), (8.0, 8.5, "save/SaveV2:SaveV2")],
    )
    found = shares_of(trace, span_of([trace]), {}, most=10)
    assert found.shares == {
        Activity.COMPUTING: pytest.approx(0.1),
        Activity.PUSHING: pytest.approx(0.25),
        Activity.PULLING: pytest.approx(0.05),
        Activity.SAVING: pytest.approx(0.05),
        Activity.OTHER: pytest.approx(0.05),
        Activity.READING: pytest.approx(0.3),
    }
    assert found.waiting == pytest.approx(0.2)
    assert found.busy == pytest.approx(0.5)
    assert (found.steps, found.seconds) == (1, 10.0)


def test_a_wait_is_for_the_task_whose_tensor_ends_it():
    trace = traced(
        [(0.0, 1.0, f"{PUSH}/split:Split"), (4.0, 5.0, f"{COMPUTE}/MatMul:MatMul")],
        [(6.0, 7.0, f"{COMPUTE}/MatMul:MatMul"), (9.0, 10.0, f"{PUSH}/split:Split")],
        arrivals=[(3.0, f"{PULL}/a"), (3.99, f"{PULL}/b"), (6.00005, f"{PULL}/a"), (8.9, "what")],
    )
    senders = {f"{PULL}/a": "ps 0", f"{PULL}/b": "ps 1"}
    found = shares_of(trace, (0.0, 10.0), senders, most=0)
    assert found.waits == {"ps 0": pytest.approx(0.1), "ps 1": pytest.approx(0.3)}
    assert found.waiting == pytest.approx(0.6)


def test_the_heaviest_operations_by_their_own_time():
    trace = traced(
        [
            (0.0, 5.0, "ExecutorState::Process"),
            (1.0, 4.0, f"{COMPUTE}/dense/MatMul:MatMul"),
            (2.0, 3.0, "ParallelFor"),
            (6.0, 8.0, f"{COMPUTE}/dense_1/MatMul:MatMul"),
        ],
        [
            (0.0, 3.0, "Iterator::Root::Prefetch::BatchV2"),
            (1.0, 3.0, "Iterator::Root::Prefetch::BatchV2::TFRecordV2"),
            (4.0, 4.5, "parse/ParseExample:ParseExampleV2"),
        ],
    )
    found = shares_of(trace, (0.0, 10.0), {}, most=3).operations
    assert [(each.name, each.seconds, each.count) for each in found] == [
        ("MatMul (computes)", 4.0, 2),
        ("TFRecordV2 (reads)", 2.0, 1),
        ("BatchV2 (reads)", 1.0, 1),
    ]
    assert [each.name for each in shares_of(trace, (0.0, 10.0), {}, most=9).operations][3:] == [
        "ParseExampleV2"
    ]


def test_an_accelerator_computes():
    trace = traced([(0.0, 10.0, "EagerExecute")], devices=[[(1.0, 4.0, "kernel")]])
    found = shares_of(trace, (0.0, 10.0), {}, most=0)
    assert found.shares[Activity.COMPUTING] == pytest.approx(0.3)


def test_what_lies_outside_of_the_span_counts_for_nothing():
    trace = traced([(0.0, 4.0, f"{COMPUTE}/a:A"), (20.0, 30.0, f"{COMPUTE}/a:A")])
    found = shares_of(trace, (2.0, 12.0), {}, most=0)
    assert (found.shares[Activity.COMPUTING], found.waiting) == (0.2, 0.8)


def test_a_batch_that_is_waited_for_before_and_after_the_trace():
    trace = traced([(2.0, 3.0, f"{COMPUTE}/a:A"), (3.0, 3.5, "MakeIterator::Prefetch")])
    trace.begun_before.append(1.5)
    trace.ended_after.append(8.0)
    found = shares_of(trace, (0.0, 10.0), {}, most=0)
    assert found.shares[Activity.READING] == pytest.approx(0.4)
    assert found.waiting == pytest.approx(0.5)
