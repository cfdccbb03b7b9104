"""Who may write to a job_dir, on disk and in buckets of two servers."""

import os

import pytest

from tests.local_cloud.cloud_fixture import each_place_fixture, job_dir_anywhere_fixture  # noqa: F401
from tfps.job_dir import JobDir
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.storage import files


def test_the_last_chief_counts(job_dir: str) -> None:
    first = ChiefFence.take_over(JobDir(job_dir))
    first.check()
    second = ChiefFence.take_over(JobDir(job_dir))
    second.confirm()
    for look in (first.check, first.confirm):
        with pytest.raises(SupersededError, match=rf"another chief \(process {os.getpid()} at "):
            look()


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_file_that_tells_of_nobody_is_no_permission(job_dir: str, content: str | None) -> None:
    fence = ChiefFence.take_over(JobDir(job_dir))
    files.remove(JobDir(job_dir).chief)
    if content is not None:
        files.write(JobDir(job_dir).chief, content.encode())
    with pytest.raises(SupersededError, match="process unknown at unknown"):
        fence.check()
