import json

import tensorflow as tf

import tfps
from tfps.cluster.spec import Cluster
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskInfo
from tfps.job_dir.task_name import TaskName

CLUSTER = Cluster(("h:1",), ("h:2", "h:3"), ("h:4",), "worker", 1)


def test_what_is_written_is_read(tmp_path):
    own = TaskInfo.own(CLUSTER.tasks(), (1 << 64) - 1, 1 << 33)
    own.write(JobDir(tmp_path / "job"), TaskName("worker", 1))
    assert TaskInfo.read(JobDir(tmp_path / "job"), TaskName("worker", 1)) == own
    assert own.tensorflow == tf.__version__
    assert own.tfps == tfps.__version__
    assert own.tasks == {"chief": 1, "worker": 2, "ps": 1}
    later = TaskInfo.own(CLUSTER.tasks(), 5, 1 << 33)
    later.write(JobDir(tmp_path / "job"), TaskName("worker", 1))
    assert TaskInfo.read(JobDir(tmp_path / "job"), TaskName("worker", 1)) == later
    assert [path.name for path in (tmp_path / "job" / "tasks").iterdir()] == ["worker-1.json"]


def test_what_cannot_be_read_is_none(tmp_path):
    assert TaskInfo.read(JobDir(tmp_path), TaskName("ps", 0)) is None
    path = tmp_path / "tasks" / "ps-0.json"
    path.parent.mkdir()
    for text in ("", "[1]", json.dumps({"incarnation": 1})):
        path.write_text(text)
        assert TaskInfo.read(JobDir(tmp_path), TaskName("ps", 0)) is None


def test_a_job_dir_that_cannot_be_written_is_warned_of(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    own = TaskInfo.own(CLUSTER.tasks(), 1, 1 << 33)
    own.write(JobDir(tmp_path / "file"), TaskName("worker", 1))
    [message] = caplog.messages
    assert f"{tmp_path}/file/tasks cannot be made" in message
