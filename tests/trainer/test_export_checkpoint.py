"""`trainer.export`: models from the checkpoints of clusters, in one process."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np
import pytest

from configs.smoke import Smoke, get_config
from tests.checkpoint.saved_state import DATA
from tests.loaded import client
from tests.training_fixtures import dataset, reused, save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.saved_values import dense_values, named_checkpoint
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from trainer.chief.checkpoint_export import export_checkpoint

BATCH = {
    "numbers": np.linspace(-1, 1, 80, dtype="f4").reshape(20, 4),
    "token": np.arange(20),
}


@pytest.fixture(name="job", scope="module")
def job_fixture(tmp_path_factory):
    """A job with a checkpoint from 3 ps before training and one after; what trained it."""
    manifest = dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)
    trainer = reused(manifest, parts=3)
    job_dir = str(tmp_path_factory.mktemp("job"))
    directory = CheckpointDirectory(JobDir(job_dir))
    save(directory, trainer.store, QueueState(), DATA)
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    save(directory, trainer.store, QueueState(1, trained=200), DATA)
    return job_dir, trainer


def own_predictions(trainer):
    """What the parameters on the ps say to `BATCH`."""
    labels = {"label": np.zeros(20, "i8")}
    return trainer.step.predict(BATCH, labels)[1]["predictions"].numpy()


def test_the_newest_checkpoint_of_a_job_becomes_a_model(job, tmp_path):
    job_dir, trainer = job
    output = tmp_path / "model"
    flags = [f"--checkpoint={job_dir}", "--config=configs/smoke.py", f"--output={output}"]
    environ = {name: x for name, x in os.environ.items() if name != "TF_CONFIG"}
    done = client.run("trainer.export", *flags, environ=environ)
    assert (done.returncode, done.stderr) == (0, "")
    path = named_checkpoint(job_dir).path
    assert done.stdout == f"checkpoint: {path}, 200 records trained\nexport: {output}\n"
    found = ExportedModel.load(str(output)).predict(BATCH)["predictions"]
    np.testing.assert_allclose(found, own_predictions(trainer), rtol=0, atol=1e-6)
    again = client.run("trainer.export", *flags, environ=environ)
    assert again.returncode == 2
    assert again.stderr == f"error: --output={output} exists; name another, or say --overwrite\n"


@pytest.mark.slow
def test_narrow_rows_are_told_what_they_cost(job, tmp_path):
    job_dir, trainer = job
    checkpoint = named_checkpoint(job_dir)
    data = trainer.manifest.directory
    output = str(tmp_path / "model")
    cost = export_checkpoint(get_config(), checkpoint, output, ("--data", data), dtype="int8")
    assert cost.records == trainer.manifest.records
    measured, exact = cost.metrics["auc"]
    assert measured == pytest.approx(exact, abs=0.01)
    told = f"auc {measured:.6f} where float32 gives {exact:.6f} ({measured - exact:+.6f})"
    assert f"on 200 records {told}, " in str(cost)
    drawn = export_checkpoint(get_config(), checkpoint, output, dtype="bfloat16")
    assert str(drawn).endswith("; name a dataset to know what it costs")
    assert export_checkpoint(get_config(), checkpoint, output) is None


def test_an_older_checkpoint_can_be_named(job, tmp_path):
    job_dir, _ = job
    name = CheckpointDirectory(JobDir(job_dir)).names()[0]
    first = named_checkpoint(f"{job_dir}/checkpoints/{name}/")
    assert first.steps == 0
    export_checkpoint(get_config(), first, str(tmp_path / "model"))
    assert ExportedModel.load(str(tmp_path / "model")).predict(BATCH)["predictions"].shape == (20,)


def test_a_path_without_a_checkpoint_is_refused(job, tmp_path):
    for path in (tmp_path, tmp_path / "missing", f"{job[0]}/checkpoints/missing"):
        with pytest.raises(UserError, match="holds no checkpoint; name a job's directory"):
            named_checkpoint(str(path))


def test_another_config_is_refused(job, tmp_path):
    other = dataclasses.replace(get_config(), task=Smoke(units=9))
    with pytest.raises(UserError, match="dense hidden/kernel was"):
        export_checkpoint(other, named_checkpoint(job[0]), str(tmp_path / "model"))


def test_damage_is_told(job, tmp_path):
    job_dir = tmp_path / "job"
    shutil.copytree(job[0], job_dir)
    checkpoint = named_checkpoint(str(job_dir))
    for path in pathlib.Path(checkpoint.path).glob("parameters.data-*"):
        path.write_bytes(bytes(path.stat().st_size))
    for read in (
        lambda: dense_values(str(job_dir)),
        lambda: export_checkpoint(get_config(), checkpoint, str(tmp_path / "model")),
    ):
        with pytest.raises(UserError, match=rf"checkpoint {checkpoint.path} is damaged: .*; name"):
            read()
