"""A checkpoint in which a byte was altered on the disk, on a cluster: the ps find it."""

import pathlib

import pytest
from cluster_process import local_cluster, read_report, trainer_flags
from datasets_on_disk import Datasets

from tests.corruption import flip_bit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_cluster_goes_on_from_the_checkpoint_before(
    datasets: Datasets, job_dir: pathlib.Path
) -> None:
    own = ("--train.epochs=1000", "--train.checkpoint_seconds=1")
    flags = trainer_flags(datasets.long, job_dir, *own)
    with local_cluster(1, 2, flags) as program:
        program.see(r"\[chief\] .* saved ")
        program.see(r"\[chief\] .* saved ", seen=len(program.lines))
        program.terminate()
        assert program.finish() == 143, program.text
    before, newest = sorted(path.parent for path in job_dir.glob("checkpoints/*/commit.json"))[-2:]
    of_the_second_ps = max(newest.glob("parameters.data-*"))
    flip_bit(of_the_second_ps, of_the_second_ps.stat().st_size // 2)
    with local_cluster(1, 2, flags) as program:
        program.see(rf"{newest} is damaged and is passed over: {of_the_second_ps.name} was altered")
        program.see(rf"resuming from {before}: ")
        program.see(r"\[chief\] .* saved ")
        program.terminate()
        assert program.finish() == 143, program.text
    report = read_report(job_dir)
    assert report["resumed_from"] == str(before)
    assert of_the_second_ps.name in report["passed_over"][str(newest)]
    assert newest.with_name(f"{newest.name}.damaged-1").is_dir()
