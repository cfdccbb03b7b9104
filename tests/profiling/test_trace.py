"""A trace is read as TensorFlow's profiler has written it."""

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfps.errors import UserError
from tfps.profiling import trace
from tfps.profiling.trace import Arrival, Event, Sending

HERE = "/job:worker/replica:0/task:1"
NEXT = {"name": "while/IteratorGetNext", "kernel_type": "IteratorGetNext"}
THERE = "/job:ps/replica:0/task:11/device:CPU:0"


def plane(space, name, *threads):
    """Adds a plane whose threads hold (begin and length in ms, name, stats)."""
    added = space.planes.add(name=name)
    numbers = {}

    def number(kept, text):
        found = numbers.setdefault((id(kept), text), 1 + len(kept))
        kept[found].id, kept[found].name = found, text
        return found

    for index, events in enumerate(threads):
        line = added.lines.add(timestamp_ns=10**9, name=f"thread {index}")
        for begin, length, text, stats in events:
            event = line.events.add(
                metadata_id=number(added.event_metadata, text),
                offset_ps=int(begin * 1e9),
                duration_ps=int(length * 1e9),
            )
            for key, value in stats.items():
                event.stats.add(metadata_id=number(added.stat_metadata, key), str_value=value)


def write(tmp_path, space):
    path = tmp_path / "host_1.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return str(path)


def test_threads_arrivals_and_what_was_sent(tmp_path):
    space = xplane_pb2.XSpace()
    done, begun = (f"ExecutorState::ProcessAsync::{what}" for what in ("Done", "Start"))
    plane(
        space,
        "/host:CPU",
        [(5, 1, "inner:Add", {}), (0, 10, "outer", {})],
        [
            (3, 1, done, {"name": "while/gather/_7", "kernel_type": "_Recv"}),
            (4, 1, done, {"name": "while/queue", "kernel_type": "QueueDequeueV2"}),
            (6, 1, "while/split/_12:_Send", {"key": f"{HERE}/device:CPU:0;7;{THERE};edge_12;0:0"}),
            (7, 1, "while/other/_14:_Send", {}),
            (1, 1, done, NEXT),
            (2, 1, begun, NEXT),
            (4, 1, done, NEXT),
            (8, 1, begun, NEXT),
        ],
        [],
    )
    plane(space, "/device:GPU:0", [(2, 2, "kernel", {})])
    plane(space, "Task Environment")
    found = trace.read(write(tmp_path, space))
    assert found.threads[0] == [
        Event(pytest.approx(1.0), pytest.approx(1.010), "outer"),
        Event(pytest.approx(1.005), pytest.approx(1.006), "inner:Add"),
    ]
    assert len(found.threads) == 2
    assert found.arrivals == [Arrival(pytest.approx(1.003), "while/gather")]
    assert found.sendings == [Sending(pytest.approx(1.006), "while/split", "ps 11")]
    assert found.begun_before == [pytest.approx(1.001)]
    assert found.ended_after == [pytest.approx(1.008)]
    assert found.devices == [[Event(pytest.approx(1.002), pytest.approx(1.004), "kernel")]]


def test_a_file_that_is_no_trace(tmp_path):
    path = tmp_path / "host_1.xplane.pb"
    path.write_bytes(b"\x0a\xff\xff\xff")
    with pytest.raises(UserError, match="is no trace, or is damaged"):
        trace.read(str(path))
