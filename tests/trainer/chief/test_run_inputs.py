"""What a run is made from, and what is refused of it before any task is asked."""

import dataclasses
import logging

import pytest

import tfps
from configs.smoke import get_config
from tests.training_fixtures import dataset
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.leases.epoch_order import EpochOrder
from trainer.chief.run_inputs import RunInputs


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Shards of 34, 33 and 33 records."""
    return dataset(tmp_path_factory.mktemp("data"), records=100, shards=3).directory


def inputs(directory, job_dir, batch_size, max_bad_records=0):
    experiment = dataclasses.replace(
        get_config(),
        data=tfps.Data(train=directory, eval=directory, max_bad_records=max_bad_records),
        train=tfps.Train(batch_size=batch_size, drop_remainder=True),
    )
    return RunInputs.check(experiment, Cluster(), str(job_dir), None)


def test_whole_batches_leave_out_the_last_records_of_shards(directory, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        found = inputs(directory, tmp_path, 16)
    assert [shard.records for shard in found.data.of_epoch(0).shards] == [32, 32, 32]
    assert "4 of 100 records are never trained" in caplog.text
    assert found.eval_data.records == 100
    chunks = EpochOrder.of(found.experiment).chunks(found.data.shards_of(0), 0)
    assert all(chunk.records % 16 == 0 for chunk in chunks)
    caplog.clear()
    assert inputs(directory, tmp_path, 1).data.of_epoch(0).records == 100
    assert not caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 35}, "no shard of --train_data=.* holds a batch of 35 records"),
        ({"batch_size": 2, "max_bad_records": 1}, "a batch without its bad records is not whole"),
    ],
)
def test_what_has_no_whole_batches_is_refused(directory, tmp_path, settings, message):
    with pytest.raises(UserError, match=f"train.drop_remainder.*{message}"):
        inputs(directory, tmp_path, **settings)


def test_each_epoch_has_its_own_data(directory, tmp_path):
    other = dataset(tmp_path / "other", records=50, shards=2).directory

    def check(*directories):
        train = ",".join(directories)
        experiment = dataclasses.replace(
            get_config(), data=tfps.Data(train=train), train=tfps.Train(epochs=3)
        )
        return RunInputs.check(experiment, Cluster(), str(tmp_path / "job"), None)

    data = check(directory, other).data
    assert [data.of_epoch(epoch).records for epoch in range(4)] == [100, 50, 100, 50]
    with pytest.raises(UserError, match=f"--train_data={tmp_path}/none does not exist"):
        check(directory, other, f"{tmp_path}/none")
    with pytest.raises(UserError, match="names 4 datasets, one for each epoch, and train"):
        check(directory, other, directory, other)


def test_what_a_job_begins_with_is_looked_at_until_it_has_a_checkpoint(directory, tmp_path):
    experiment = dataclasses.replace(
        get_config(),
        data=tfps.Data(train=directory),
        train=tfps.Train(init_from=str(tmp_path / "other")),
    )

    def check():
        return RunInputs.check(experiment, Cluster(), str(tmp_path / "job"), None)

    with pytest.raises(UserError, match=r"--init_from=.*/other holds no checkpoint; name a job's"):
        check()
    path = tmp_path / "job/checkpoints/000000000016-000002-000000000000"
    path.mkdir(parents=True)
    (path / "commit.json").touch()
    assert check().experiment is experiment
