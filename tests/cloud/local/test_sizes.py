"""A job that its launcher runs in one size after the other."""

import pytest

from cloud.job_spec import JobSpec, Role
from cloud.local.launch import Launch
from tfps.errors import EXIT_OK, EXIT_RESIZED, UserError
from tfps.job_dir.size import Size

ROLES = (Role("chief"), Role("worker", 2), Role("ps"))
SPEC = JobSpec("sizes", ("--config=configs/smoke.py", "--job_dir=x"), ROLES)
FIRST, LARGE = Size(2, 1), Size(9, 1)


def test_a_size_that_this_machine_cannot_start_is_refused(tmp_path, capfd):
    begun = []

    def run(size):
        begun.append(size)
        if size == LARGE:
            raise UserError("there are not so many GPUs")
        return EXIT_RESIZED if len(begun) == 1 else EXIT_OK

    with Launch(SPEC, tmp_path, False) as launch:
        assert launch.run_in_sizes(FIRST, run, lambda: LARGE) == EXIT_OK
    assert begun == [FIRST, LARGE, FIRST]
    said = capfd.readouterr().out
    assert "[launcher] there are not so many GPUs" in said
    assert "the run cannot have 9 workers and 1 ps: going back to 2 workers and 1 ps" in said


def test_a_first_size_that_it_cannot_start_ends_it(tmp_path):
    def run(size):
        raise UserError("there are not so many GPUs")

    with Launch(SPEC, tmp_path, False) as launch, pytest.raises(UserError, match="GPUs"):
        launch.run_in_sizes(LARGE, run)
