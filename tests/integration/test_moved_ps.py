"""Parameters move from 2 ps to 3 to 1, on real clusters, and the training continues."""

import dataclasses
import itertools
import pathlib

import numpy as np
import pytest
from cluster_process import Program, checkpoints, local_cluster, read_report, trainer_flags

from configs.smoke import Smoke, get_config
from tests.training_fixtures import Trainer
from tfps.checkpoint.restore import restore
from tfps.checkpoint.saved_values import named_checkpoint
from tfps.data.manifest import Manifest
from trainer.datasets.generation import generate

TASK = Smoke(vocabulary=25_000, dim=64)  # 20 MB with Adam's slots: rows are tracked
FLAGS = ("--task.vocabulary=25000", "--task.dim=64", "--train.checkpoint_seconds=1")
RECORDS = 4_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def held(data: Manifest, job_dir: pathlib.Path) -> tuple[dict[str, np.ndarray], float]:
    """Every logical tensor of a job's newest checkpoint, slots included; its loss, in one process.

    Read by one ps, so that it is clear what is compared.
    """
    trainer, checkpoint = Trainer(data, TASK, parts=1), named_checkpoint(str(job_dir))
    restore(checkpoint, trainer.store, [data.identity])
    tensors = {slice_.name: slice_.variable.numpy() for slice_ in trainer.store.slices()}
    return tensors, trainer.evaluate().loss


def train_until_stopped(ps: int, flags: list[str]) -> None:
    """Trains until an increment was saved and some more, then saves another and ends."""
    with local_cluster(2, ps, [*flags, "--train.epochs=1000"]) as program:
        program.see(r"\[chief\] .*saved .*, what was touched since")
        program.terminate()
        assert program.finish() == 143, program.text


def moved(ps: int, flags: list[str], copy: pathlib.Path) -> float:
    """The loss of the newest checkpoint, restored onto so many ps and saved from there again."""
    own = ["--workers=1", f"--ps={ps}", "--module=tests.integration.restored_and_saved", "--"]
    with Program(*own, *flags, f"--copy_to={copy}", module="cloud.local") as program:
        loss = program.see(r"evaluated \S+: loss (\S+)")[1]
        assert program.finish() == 0, program.text
    return float(loss)


def test_2_ps_then_3_then_1(tmp_path: pathlib.Path) -> None:
    experiment = dataclasses.replace(get_config(), task=TASK)
    data = generate(experiment, str(tmp_path / "data"), RECORDS, 4, 0, 0, "smoke", False)
    job_dir = tmp_path / "job"
    flags = trainer_flags(data.directory, job_dir, *FLAGS, eval_data=data.directory)
    losses = []
    for before, after in ((2, 3), (3, 1)):
        train_until_stopped(before, flags)
        newest = checkpoints(job_dir)[-1]
        assert newest["increment"], "what is moved is an increment with its base"
        copy = tmp_path / f"on-{after}"
        losses.append(moved(after, flags, copy))
        (original, loss), (restored, _) = held(data, job_dir), held(data, copy)
        assert losses[-1] == pytest.approx(loss, rel=1e-5)
        assert set(original) == set(restored) >= {"dense", "dense/velocity", "tables_dim64"}
        for name, values in original.items():
            assert np.array_equal(values, restored[name]), name
    epochs = named_checkpoint(str(job_dir)).queue.epoch + 2
    with local_cluster(2, 1, [*flags, f"--train.epochs={epochs}"]) as program:
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    losses.append(report["metrics"]["loss"])
    print(losses)
    for earlier, later in itertools.pairwise(losses):
        assert later < earlier + 0.01
    assert report["examples"]["skipped"] == report["examples"]["repeated"] == 0
    assert report["examples"]["trained"] == epochs * RECORDS
    assert named_checkpoint(str(job_dir)).increment is None, "the last one stands alone"
