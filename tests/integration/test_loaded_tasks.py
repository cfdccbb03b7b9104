"""Tasks that are forks of a process which has loaded TensorFlow, as users have them."""

import pathlib
import re

import pytest
from cluster_process import Program, read_report, trainer_flags
from datasets_on_disk import UNEVEN, Datasets

OWN = re.compile(r"\[launcher\] |\[(chief|worker \d|ps \d)\] \d\d:\d\d:\d\d [a-z]")


@pytest.mark.slow
def test_nothing_of_tensorflow_is_on_the_terminal(
    datasets: Datasets, job_dir: pathlib.Path
) -> None:
    flags = trainer_flags(datasets.uneven, job_dir, "--train.export=none")
    launcher = ("--workers=2", "--ps=1", "--", *flags)
    # Programs that were imported before in this process have said that theirs is to say nothing.
    own = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    with Program(*launcher, environ=own, module="cloud.local", loads=True) as program:
        assert program.finish() == 0, program.text
    assert [line for line in program.lines if not OWN.match(line)] == []
    assert read_report(job_dir)["examples"]["trained"] == 2 * sum(UNEVEN)
    for name in ("chief-0", "worker-0", "worker-1", "ps-0"):  # it looks for GPUs in all
        assert (job_dir / "logs" / f"{name}.log").stat().st_size > 0
