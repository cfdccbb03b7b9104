import signal

import pytest

from cloud.local.faults import Fault, parse
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

TASKS = {"chief": 1, "worker": 3, "ps": 2}


def test_faults_are_read_and_ordered():
    text = "term:chief@90s, stop:ps:0@60s+10s,kill:worker:2@30.5s"
    assert parse(text, TASKS, 0) == [
        Fault("kill", TaskName("worker", 2), 30.5),
        Fault("stop", TaskName("ps", 0), 60.0, 10.0),
        Fault("term", TaskName("chief", 0), 90.0),
    ]
    assert [fault.signal for fault in parse(text, TASKS, 0)] == [
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGTERM,
    ]
    assert str(parse("stop:ps:0@60s+10s", TASKS, 0)[0]) == "stop ps 0 for 10 s"


def test_a_seed_draws_what_is_left_open():
    text = ",".join(["kill:worker:*@10s-20s"] * 20)
    first = parse(text, TASKS, 1)
    assert first == parse(text, TASKS, 1)
    assert first != parse(text, TASKS, 2)
    assert {fault.task for fault in first} == {
        TaskName("worker", 0),
        TaskName("worker", 1),
        TaskName("worker", 2),
    }
    assert all(10 <= fault.at <= 20 for fault in first)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no fault; write KIND:JOB[:INDEX]@SECONDSs"),
        ("kill:worker:0", "'kill:worker:0' is no fault"),
        ("kill:worker:0@3", "is no fault"),
        ("melt:worker:0@3s", "kind 'melt' is unknown; use kill, stop, term"),
        ("kill:evaluator:0@3s", "the cluster has no evaluator; its jobs are chief, worker, ps"),
        ("kill:ps:2@3s", "the cluster has 2 ps; indices start at 0"),
        ("kill:ps:0@3s+4s", "only a stop lasts; leave out +4s"),
        ("kill:ps:0@1.2.3s", "'1.2.3' is no number of seconds"),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    with pytest.raises(UserError) as refused:
        parse(text, TASKS, 0)
    assert said in str(refused.value)
