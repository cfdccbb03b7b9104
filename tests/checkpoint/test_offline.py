"""The dense parameters of a checkpoint, read without a cluster."""

import dataclasses

import keras
import numpy as np
import pytest

from configs.smoke import Smoke
from tests.checkpoint.saved_state import DATA, train
from tests.training_fixtures import reused, save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.saved_values import dense_values
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel


@pytest.fixture(name="job", scope="module")
def job_fixture(manifest, tmp_path_factory):
    """A job's directory with a checkpoint from 3 ps, and what trained it."""
    trainer, job_dir = reused(manifest, parts=3), str(tmp_path_factory.mktemp("job"))
    train(trainer, 0)
    save(CheckpointDirectory(JobDir(job_dir)), trainer.store, QueueState(1), DATA)
    return job_dir, trainer


def test_dense_values_are_those_of_the_ps(job):
    job_dir, trainer = job
    found = dense_values(job_dir)
    model, store = trainer.model, trainer.store
    variables = [*model.dense, *model.state]
    assert list(found) == [variable.path for variable in variables]
    read = [*store.read_dense(), *store.read_state()]
    for variable, value in zip(variables, read, strict=True):
        np.testing.assert_array_equal(found[variable.path], value)


def test_a_model_goes_on_with_dense_values_and_new_tables(job):
    job_dir, _ = job
    values = dense_values(job_dir)

    @dataclasses.dataclass(frozen=True)
    class More(Smoke):
        """More ids than before."""

        vocabulary: int = 50

        def build_model(self) -> keras.Model:
            model = super().build_model()
            for variable in model.variables:
                if variable.path in values:
                    variable.assign(values[variable.path])
            return model

    model = StatelessModel(More(), seed=3)
    expected = [values[variable.path].ravel() for variable in model.dense]
    np.testing.assert_array_equal(model.initial_dense, np.concatenate(expected))
    expected = [values[variable.path].ravel() for variable in model.state]
    np.testing.assert_array_equal(model.initial_state, np.concatenate(expected))
