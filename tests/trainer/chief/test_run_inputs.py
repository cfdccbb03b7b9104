"""What a run is made from, and what is refused of it before any task is asked."""

import dataclasses
import logging
import shutil

import pytest

import tfps
from configs.smoke import Smoke, get_config
from tests.training_fixtures import dataset, inputs_of
from tfps.data import manifest as manifests
from tfps.data.examples import ValueCounts
from tfps.errors import UserError
from tfps.leases.lease import EpochOrder


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
    return inputs_of(experiment, job_dir)


@pytest.mark.slow
def test_whole_batches_leave_out_the_last_records_of_shards(directory, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        found = inputs(directory, tmp_path, 16)
    assert [shard.records for shard in found.data.train.of_epoch(0).shards] == [32, 32, 32]
    assert "4 of 100 records are never trained" in caplog.text
    assert found.data.eval.records == 100
    chunks = EpochOrder.of(found.settings.experiment).chunks(found.data.train.shards_of(0), 0)
    assert all(chunk.records % 16 == 0 for chunk in chunks)
    caplog.clear()
    assert inputs(directory, tmp_path, 1).data.train.of_epoch(0).records == 100
    assert not caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 35}, "no shard of --data.train=.* holds a batch of 35 records"),
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
        return inputs_of(experiment, tmp_path / "job")

    data = check(directory, other).data.train
    assert [data.of_epoch(epoch).records for epoch in range(4)] == [100, 50, 100, 50]
    with pytest.raises(UserError, match=f"--data.train={tmp_path}/none does not exist"):
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
        return inputs_of(experiment, tmp_path / "job")

    with pytest.raises(
        UserError, match=r"--train.init_from=.*/other holds no checkpoint; name a job's"
    ):
        check()
    path = tmp_path / "job/checkpoints/000000000016-000002-000000000000"
    path.mkdir(parents=True)
    (path / "commit.json").touch()
    assert check().settings.experiment is experiment


def test_records_that_cannot_be_trained_are_refused_before_the_run_begins(directory, tmp_path):
    made = manifests.read(directory)
    lacking = {"numbers": ValueCounts(missing=3)}
    lacking = dataclasses.replace(made, counts=lacking, directory=str(tmp_path / "data"))
    shutil.copytree(directory, lacking.directory)
    manifests.write(lacking)
    message = rf"--data.train={lacking.directory}: 3 of 100 \(3.00%\) records have no value of 'num"
    with pytest.raises(UserError, match=message):
        inputs(lacking.directory, tmp_path / "job", 1)

    class WithDefault(Smoke):
        def features(self):
            numbers, token = super().features()
            return dataclasses.replace(numbers, default=0.0), token

    def check(task, max_bad_records):
        data = tfps.Data(train=lacking.directory, max_bad_records=max_bad_records)
        experiment = dataclasses.replace(get_config(), task=task, data=data)
        return inputs_of(experiment, tmp_path / "job")

    assert check(WithDefault(), 0).data.train.of_epoch(0).records == 100
    assert check(Smoke(), 3).data.train.of_epoch(0).records == 100


def test_features_that_are_nan_are_named_before_the_loss_is(directory, tmp_path, caplog):
    made = manifests.read(directory)
    counts = {"numbers": ValueCounts(not_finite=3), "token": ValueCounts()}
    odd = dataclasses.replace(made, counts=counts, directory=str(tmp_path / "data"))
    shutil.copytree(directory, odd.directory)
    manifests.write(odd)
    experiment = dataclasses.replace(get_config(), data=tfps.Data(train=odd.directory))
    with caplog.at_level(logging.WARNING):
        inputs_of(experiment, tmp_path / "job")
    said = f"{odd.directory}: records hold a NaN or an infinity: 'numbers' in 3 of 100 (3.00%). Un"
    assert said in caplog.text


def test_a_label_has_no_default(directory, tmp_path):
    class WithDefault(Smoke):
        def label(self):
            return dataclasses.replace(super().label(), default=0)

    experiment = dataclasses.replace(
        get_config(), task=WithDefault(), data=tfps.Data(train=directory)
    )
    with pytest.raises(UserError, match="label 'label' has a default: every record without it"):
        inputs_of(experiment, tmp_path / "job")
