"""Random faults at random moments of the census job: it completes and loses nothing.

Proven by the model, which counts how often each record was trained. The data are the real ones
where TFPS_CENSUS names their directory, else rows drawn like them. `make chaos` says which seeds
are run, and keeps what came of each for its table.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chaos_job import (
    AUC_TOLERANCE,
    Disturbance,
    Job,
    Undisturbed,
    check,
    prepare,
    undisturbed,
)
from cluster_process import PATIENCE, Program, assert_gone, read_report

FIRST = int(os.environ.get("TFPS_CHAOS_FIRST", "0"))
RUNS = int(os.environ.get("TFPS_CHAOS_RUNS", "0"))
SEEDS = range(FIRST, FIRST + RUNS) if RUNS else (0, 1, 2, 18)


@contextlib.contextmanager
def alone(directory: pathlib.Path) -> Iterator[None]:
    """What several processes of pytest need, one makes."""
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(name="shared", scope="session")
def shared_fixture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory for all processes of pytest."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "chaos"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(name="data", scope="session")
def data_fixture(shared: pathlib.Path) -> pathlib.Path:
    data = shared / "data"
    with alone(shared):
        if not data.exists():
            data.mkdir()
            prepare(data)
    return data


@pytest.fixture(name="reference", scope="session")
def reference_fixture(data: pathlib.Path, shared: pathlib.Path) -> Callable[[str], Undisturbed]:
    """By mode, a run to which nothing happens."""

    def of_mode(mode: str) -> Undisturbed:
        directory = shared / mode.replace(", ", "-").replace(" ", "-")
        directory.mkdir(exist_ok=True)
        with alone(directory):
            found = directory / "undisturbed.json"
            if not found.exists():
                job_dir = pathlib.Path(tempfile.mkdtemp(dir=directory)) / "job"
                made = undisturbed(data, job_dir, mode)
                found.write_text(json.dumps(dataclasses.asdict(made)))
        return Undisturbed(**json.loads(found.read_text()))

    return of_mode


@pytest.mark.slow
@pytest.mark.timeout(8 * PATIENCE)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults(
    data: pathlib.Path,
    tmp_path: pathlib.Path,
    reference: Callable[[str], Undisturbed],
    seed: int,
) -> None:
    drawn = Disturbance.drawn(seed)
    run = Run(Job(data, tmp_path / "job", drawn), reference(drawn.mode), seed)
    try:
        run.finish()
        run.check()
    except BaseException as error:
        run.outcome["failure"] = str(error).strip().split("\n", 1)[0][:300] or repr(error)
        raise
    finally:
        run.keep()
    print(json.dumps(run.outcome), *(x for x in run.lines if "chaos:" in x), sep="\n  ")


class Run:
    """One job, its faults and what came of it.

    Attributes:
        outcome: For the table of `make chaos`.
        lines: What the job has printed.
    """

    def __init__(self, job: Job, expected: Undisturbed, seed: int) -> None:
        self._job, self._expected, self._seed = job, expected, seed
        self._chaos = job.disturbance.chaos(expected)
        self.lines: list[str] = []
        self._errors: list[str] = []
        drawn = dataclasses.asdict(job.disturbance) | {"chaos": self._chaos}
        self.outcome: dict[str, Any] = {"seed": seed, **drawn, "failure": None, "cpu_seconds": 0.0}

    def finish(self) -> None:
        """Runs the job to its end, and once more where its chief was asked to end.

        The same holds where its storage misbehaves, which may end it.
        """
        began = time.monotonic()
        try:
            code = self._once(f"--chaos={self._chaos}", f"--chaos_seed={self._seed}")
            may_end = (130, 143, 2, 3) if self._job.disturbance.storage else (130, 143)
            if code in may_end:  # the same command resumes
                self.outcome["resumed"] = True
                code = self._once(is_again=True)
        finally:
            self.outcome["seconds"] = time.monotonic() - began
        assert code == 0, f"exit code {code}: {self._last_error()}"

    def check(self) -> None:
        """Checks what the job has left."""
        job, text = self._job, "\n".join(self.lines)
        assert_gone(job.processes())
        if self._job.disturbance.storage:  # each task that it ends prints one line
            assert not [line for line in self._errors if "Traceback" in line]
        else:
            assert self._errors == []
        assert "damaged" not in text  # nothing half written was ever taken for a checkpoint
        report = read_report(job.job_dir)
        self.outcome["repeated"] = report["examples"]["repeated"]
        self.outcome["recoveries"] = len(report["recoveries"])
        self.outcome["auc"] = auc = report["metrics"]["auc"]
        self.outcome["more"] = check(job, job.disturbance.most_repeated())
        assert auc == pytest.approx(self._expected.auc, abs=AUC_TOLERANCE)

    def keep(self) -> None:
        """Writes the outcome, and what a failed job has printed, where `make chaos` asks for it."""
        if not (kept := os.environ.get("TFPS_CHAOS_KEPT")):
            return
        directory = pathlib.Path(kept)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"seed-{self._seed}"
        (directory / f"{name}.json").write_text(json.dumps(self.outcome))
        if self.outcome["failure"]:
            (directory / f"{name}.log").write_text("\n".join([str(self.outcome), *self.lines]))

    def _once(self, *own: str, is_again: bool = False) -> int:
        program: Program | None = None
        try:
            with self._job.start(*own, is_again=is_again) as program:
                code = program.finish(4 * PATIENCE)
        finally:
            if program:
                self.lines += program.lines
                self._errors += program.errors
                if program.is_fork:
                    self.outcome["cpu_seconds"] += program.cpu_seconds
        return code

    def _last_error(self) -> str:
        found = (x for x in reversed(self.lines) if "error" in x and 'File "' not in x)
        return next(found, "no error was printed")
