import pytest

from tests.profiling.test_shares import COMPUTE, NEXT, PULL, PUSH, traced
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import RunBegan
from trainer.console.profile_text import lines

WORKER = traced(
    [(0.0, 1.0, NEXT), (1.0, 5.0, f"{COMPUTE}/MatMul:MatMul"), (9.0, 10.0, f"{PUSH}/a:Split")],
    arrivals=[(8.99, f"{PULL}/rows")],
)
PS = traced(
    [(6.0, 8.0, f"{PULL}/rows:ResourceGather")], sendings=[(8.0, f"{PULL}/rows", "worker 0")]
)
TRACES = {
    TaskName("chief", 0): traced(),
    TaskName("worker", 0): WORKER,
    TaskName("ps", 0): PS,
}
BEGAN = RunBegan(
    at=0.0, config="c", mode="async", workers=1, ps=1, settings={"train.batch_size": "64"}
)


def test_what_each_task_did_and_what_bounds_the_run():
    told = lines(TRACES, [BEGAN])
    assert told[0].split()[:3] == ["task", "steps", "reads"]
    worker, ps = (" ".join(line.split()) for line in told[1:3])
    assert worker == "worker 0 1 10% 0% 40% 10% 0% 0% 40%, 40% for ps 0"
    assert ps == "ps 0 0% 20% 0% 0% 0% 0% 80%"
    assert "MatMul (computes)           1  4,000.0 ms      40.0%" in told
    assert told[-1].startswith("The network bounds the run: workers spend 50% of their time")
    assert told[-1].endswith("raise train.batch_size, which is 64.")


def test_a_job_that_does_nothing():
    with pytest.raises(UserError, match="no task did anything"):
        lines({TaskName("ps", 0): traced()}, [BEGAN])
    told = lines({TaskName("ps", 0): PS}, [BEGAN])
    assert told[-1].startswith("No worker has taken a batch while it was traced")
    with pytest.raises(UserError, match="history"):
        lines(TRACES, [])
