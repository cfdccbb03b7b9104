"""Every task of a job on this machine: `--target=local`."""

import dataclasses
import math
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Sequence

from absl import flags

from cloud import job_spec
from cloud.job_spec import JobSpec
from cloud.local import command
from cloud.local.command import Ports, commands
from cloud.local.faults import Fault, parse
from cloud.local.launch import Launch, check, log_dir_of
from cloud.local.supervisor import Limits
from cloud.target import Request, Target
from tfps.cluster.spec import JOBS, Cluster
from tfps.errors import UserError
from tfps.job_dir.size import Size

_HOST = "127.0.0.1"
_RENDERED_PORT = 2222  # and those after it stand for the ports that a run finds free


def define_flags(values: flags.FlagValues) -> None:
    for number, default, text in (
        ("grace_seconds", 30, "Time for the chief to end after Ctrl-C or SIGTERM."),
        ("chaos_seed", 0, "Seed of what --chaos leaves open."),
        ("gpus_per_worker", 0, "GPUs of each worker alone; 0: every worker uses all there are."),
    ):
        flags.DEFINE_integer(number, default, text, lower_bound=0, flag_values=values)
    for name, text in (
        ("chaos", "Faults to inject, such as kill:worker:*@30s,stop:ps:0@60s+10s,term:chief@9s."),
        ("log_dir", "Directory of the tasks' logs; default: JOB_DIR/logs if it is local."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)


def from_flags(values: flags.FlagValues) -> "LocalTarget":
    return LocalTarget(
        values.grace_seconds,
        values.log_dir,
        values.chaos,
        values.chaos_seed,
        values.gpus_per_worker,
    )


@dataclasses.dataclass(frozen=True)
class LocalTarget(Target):
    """This machine: tasks are processes, with ports of the loopback; machines mean nothing here."""

    name = "local"

    grace_seconds: float = 30.0
    log_dir: str | None = None
    faults: str | None = None  # as `faults.parse` reads them
    faults_seed: int = 0
    gpus_per_worker: int = 0  # 0 for all of them to share all

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The tasks' commands and what is added to their environment, servers first."""
        self._check(spec)
        ports = range(_RENDERED_PORT, _RENDERED_PORT + spec.tasks + spec.chief_works)
        log_dir = log_dir_of(spec, self.log_dir) or pathlib.Path(tempfile.gettempdir())
        tasks = _cluster(spec, ports)
        owned = command.owned(tasks, self.gpus_per_worker, os.environ)
        planned = commands(tasks, _with_port(spec, ports), log_dir, {}, None, owned)
        return tuple(
            {"task": each.name, "command": list(each.argv), "environment": dict(each.environ)}
            for each in planned
        )

    def submit(self, spec: JobSpec, wait: bool = True) -> int:
        """Runs the job, which ends with this process in any case."""
        self._check(spec)
        counts = {job: spec.replicas(job) for job in JOBS}
        counts["worker"] += spec.chief_works
        faults = parse(self.faults, counts, self.faults_seed) if self.faults else []
        ends = time.monotonic() + (spec.timeout_seconds or math.inf)
        size = Size(spec.replicas("worker"), spec.replicas("ps"))
        with Launch.begin(spec, self.log_dir, spec.tasks, is_live=not faults) as launch:

            def run(now: Size) -> int:
                mine = faults if now == size else []  # they name tasks of the first size
                return self._run(launch, job_spec.resized(spec, now), ends, mine)

            return launch.run_in_sizes(size, run)

    def _run(self, launch: Launch, spec: JobSpec, ends: float, faults: Sequence[Fault]) -> int:
        """Runs the job until it ends, or is to have another size."""
        left = max(0.0, ends - time.monotonic())
        limits = Limits(
            self.grace_seconds, spec.restarts, timeout_seconds=None if left == math.inf else left
        )
        with Ports(spec.tasks + spec.chief_works) as ports:
            tasks = _cluster(spec, ports.numbers)
            launch.say_what(tasks, job_spec.unused(spec))
            owned = command.owned(tasks, self.gpus_per_worker, os.environ)
            planned = launch.commands(tasks, _with_port(spec, ports.numbers), owned)
            return launch.run(planned, limits, int(spec.chief_works), faults)

    def plan(self, spec: JobSpec) -> int:
        """Lets a chief print its plan for so many tasks and end; it contacts nobody."""
        self._check(spec)
        ports = range(1, 1 + spec.tasks + spec.chief_works)  # which nobody opens
        job = _with_port(spec, ports)
        *_, chief = commands(_cluster(spec, ports), job, pathlib.Path(), os.environ, None, {})
        argv = [each for each in chief.argv if not each.startswith("--tensorflow_log=")]
        return subprocess.run([*argv, "--dry_run"], env=chief.environ, check=False).returncode

    def _check(self, spec: JobSpec) -> None:
        check(spec)
        if self.gpus_per_worker and spec.chief_works:
            raise UserError(
                f"--gpus_per_worker={self.gpus_per_worker} with --chief_works: the worker next to "
                "the chief has no GPUs of its own; leave one of them out"
            )


def _cluster(spec: JobSpec, ports: Sequence[int]) -> Cluster:
    addresses = iter([f"{_HOST}:{port}" for port in ports])
    by_job = {job: tuple(next(addresses) for _ in range(spec.replicas(job))) for job in JOBS}
    return Cluster(by_job["chief"], by_job["worker"], by_job["ps"], by_job["evaluator"])


def _with_port(spec: JobSpec, ports: Sequence[int]) -> JobSpec:
    """The job with the last port for the worker next to the chief, unless they name one."""
    if not spec.chief_works or spec.argument("chief_worker_port"):
        return spec
    arguments = (*spec.arguments, f"--chief_worker_port={ports[-1]}")
    return dataclasses.replace(spec, arguments=arguments)
