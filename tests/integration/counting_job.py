"""Jobs of the task that counts how often each record was trained."""

import json
import pathlib
import shutil
from typing import Any

import numpy as np

from tests import counting_task
from tests.training_fixtures import Trainer
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.data.manifest import Manifest
from tfps.job_dir import JobDir


def flags(
    data: Manifest, job_dir: pathlib.Path, task: counting_task.CountingTask, *more: str
) -> list[str]:
    """The trainer's."""
    return [
        "--config=tests/counting_task.py",
        f"--data.train={data.directory}",
        f"--job_dir={job_dir}",
        f"--task.records={task.records}",
        f"--task.payload={task.payload}",
        f"--task.step_seconds={task.step_seconds}",
        *more,
    ]


def trained(
    data: Manifest, task: counting_task.CountingTask, job_dir: pathlib.Path, epoch: int
) -> np.ndarray[Any, Any]:
    """How often each record was trained, from the checkpoint at an epoch's end."""
    paths = (job_dir / "checkpoints").iterdir()
    commits = {path: json.loads((path / "commit.json").read_text())["queue"] for path in paths}
    [path] = [p for p, q in commits.items() if (q["epoch"], q["cursor"]) == (epoch, 0)]
    alone = job_dir.parent / f"epoch-{epoch}"
    shutil.copytree(path, alone / "checkpoints" / path.name)
    directory = CheckpointDirectory(JobDir(alone))
    checkpoint = directory.latest()
    assert checkpoint is not None
    store = Trainer(data, task).store
    restore(checkpoint, store, checkpoint.datasets)
    return store.read_table(0)[:, 0]
