"""Jobs of a real Slurm, as a user submits and watches them."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from tests.project import ROOT
from tests.real_slurm.slurm import RealSlurm

PATIENCE = 240.0  # seconds that any one event may take on a busy machine
RECORDS = 600
BATCH = 10
_ENDED = ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL", "TIMEOUT")


class Job:
    """A job that counts how often each record was trained.

    Attributes:
        number: Slurm's.
        text: What submitting it printed.
    """

    def __init__(
        self,
        slurm: RealSlurm,
        directory: pathlib.Path,
        *trainer: str,
        epochs: int = 2,
        step_seconds: float = 0.2,
        submit: tuple[str, ...] = ("--workers=2", "--ps=1", "--nodes=3"),
    ) -> None:
        """Submits it.

        Args:
            slurm: Where to.
            directory: With `data`; that of the job is made there, the logs are written there.
            trainer: Further flags of the trainer.
            epochs: Of `RECORDS` records.
            step_seconds: How long a step of `BATCH` records takes.
            submit: Flags of `cloud.submit`.
        """
        self._slurm = slurm
        self.directory = directory
        self.job_dir = directory / "job"
        directory.mkdir(exist_ok=True)
        done = self.cloud_submit(
            f"--python={sys.executable}",
            *submit,
            "--",
            f"--config={ROOT}/tests/counting_task.py",
            f"--data.train={directory.parent}/data",
            f"--job_dir={self.job_dir}",
            f"--task.records={RECORDS}",
            f"--task.step_seconds={step_seconds}",
            f"--train.batch_size={BATCH}",
            f"--train.epochs={epochs}",
            "--grace_seconds=20",
            *trainer,
        )
        assert done.returncode == 0, done.stderr
        self.text = done.stdout
        match = re.search(r"^submitted (\d+)$", self.text, re.MULTILINE)
        assert match is not None, self.text
        self.number = match[1]

    def cloud_submit(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Runs `cloud.submit --target=slurm`, with a verb or without."""
        return subprocess.run(
            [sys.executable, "-m", "cloud.submit", *argv, "--target=slurm"]
            if argv[0] in ("list", "follow", "cancel", "describe")
            else [sys.executable, "-m", "cloud.submit", "--target=slurm", *argv],
            cwd=self.directory,
            env=os.environ | self._slurm.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
        )

    def log(self, task: str = "") -> str:
        """What a task has written, such as "worker-0"; the chief without."""
        path = self.directory / f"counting-task-{self.number}{task and '-'}{task}.log"
        return path.read_text() if path.exists() else ""

    def see(self, pattern: str, times: int = 1) -> None:
        """Waits for a line of the chief's."""

        def is_seen() -> bool:
            if len(re.findall(pattern, self.log())) >= times:
                return True
            assert self.state not in _ENDED, f"ended without {pattern}: {self.state}\n{self.log()}"
            return False

        self.wait(is_seen, pattern)

    def wait(self, is_so: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Waits until something is so."""
        until = time.monotonic() + patience
        while not is_so():
            assert time.monotonic() < until, f"not in time: {what}; {self.state}\n{self.log()}"
            time.sleep(0.2)

    @property
    def state(self) -> str:
        """Such as RUNNING."""
        return self._slurm.field(self.number, "JobState")

    def end(self, patience: float = PATIENCE) -> str:
        """Waits for its end; its state."""
        self.wait(lambda: self.state in _ENDED, "end", patience)
        return self.state

    def process(self, job: str, index: int = 0) -> psutil.Process:
        """The process of a task that runs now."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environ = process.environ()
                if environ.get("SLURM_JOB_ID") != self.number or "TF_CONFIG" not in environ:
                    continue
                task = json.loads(environ["TF_CONFIG"])["task"]
                if task == {"type": job, "index": index} and "trainer.task" in process.cmdline():
                    return process
        raise AssertionError(f"{job} {index} does not run")

    def report(self) -> dict:
        """Its report.json."""
        return json.loads((self.job_dir / "report.json").read_text())
