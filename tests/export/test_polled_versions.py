"""A process that loads every new version at once never finds half a model, nor what goes again."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.export import polling_reader
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.training_fixtures import dataset, reused
from tfps.export import versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
EXPORTS, KEEP = 10, 2


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


def poll_beside(base, exports, trainer, environ):
    """Exports versions, every other with its tables in slices, and deletes old ones, as a job does.

    Returns:
        The versions that were loaded, and those that were deleted meanwhile.
    """
    command = [sys.executable, polling_reader.__file__, base, str(exports)]
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "polling\n"
        for whole_bytes in itertools.islice(itertools.cycle([0, 1 << 30]), exports):
            trainer.export(versions.next_version(base), whole_bytes=whole_bytes)
            versions.delete_old(base, KEEP)
        printed, said = process.communicate(timeout=polling_reader.PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said[-3000:]
    loaded, deleted = (list(map(int, line.split())) for line in printed.splitlines())
    print(f"{len(loaded)} of {exports} versions were loaded, {len(deleted)} gone before that")
    return loaded, deleted


def check(base, loaded, deleted):
    assert loaded == sorted(loaded)
    assert loaded[-1] == EXPORTS
    assert len(loaded) > len(deleted)
    assert versions.whole_versions(base) == [EXPORTS - 1, EXPORTS]


def test_on_a_disk(manifest, tmp_path):
    base = str(tmp_path / "export")
    check(base, *poll_beside(base, EXPORTS, reused(manifest, parts=3), os.environ))


def test_in_a_bucket(cloud, manifest):
    base = "gs://bucket/job/export"
    check(base, *poll_beside(base, EXPORTS, reused(manifest, parts=3), os.environ))
