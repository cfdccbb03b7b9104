"""Training from gs:// while requests fail."""

import numpy as np
import pytest

from tests.local_cloud.cloud_fixture import cloud_fixture, each_cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tests.training_fixtures import Trainer, dataset
from tfps.data import manifest

RECORDS, SHARDS = 600, 6


def trained(directory):
    trainer = Trainer(manifest.read(directory), parts=1)
    queue = trainer.queue(epochs=2)
    while not queue.finished:
        trainer.coordinator.train(queue, lambda: False, lambda progress: None)
        queue.next_epoch()
    assert queue.trained == 2 * RECORDS
    assert queue.repeated == 0
    return trainer.store


@pytest.fixture(name="expected", scope="module")
def expected_fixture(cloud_process, tmp_path_factory):
    local = dataset(tmp_path_factory.mktemp("faults") / "data", records=RECORDS, shards=SHARDS)
    return trained(local.directory)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["503", "truncate"])
def test_requests_that_fail_change_nothing(cloud, expected, what):
    dataset(f"gs://bucket/{what}", records=RECORDS, shards=SHARDS)
    cloud.set(faults=(Fault(what, ("read", "list"), fraction=0.2),))
    found = trained(f"gs://bucket/{what}")
    assert cloud.counted()["faults"][what] >= 2
    for values, others in zip(found.read_dense(), expected.read_dense(), strict=True):
        np.testing.assert_array_equal(values, others)
    np.testing.assert_array_equal(found.read_table(0), expected.read_table(0))
