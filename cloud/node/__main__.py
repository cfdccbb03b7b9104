r"""Starts this machine's tasks of a job on N equal machines: `python -m cloud.node`.

    python -m cloud.node --nodes=10.0.0.4,10.0.0.5 -- --config=mine.py --job_dir=gs://BUCKET/job \
      --data.train=gs://BUCKET/train

Run the same command once on each machine, by whatever starts things there. Which machines there are
and which one this is comes from the variables of SkyPilot, SageMaker, Slurm, Open MPI, Azure ML or
RANK, WORLD_SIZE and MASTER_ADDR, or from --nodes. The first has the chief, each has ps and workers.
A task that dies is started again. Everywhere the run ends with the chief's exit code.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from absl import flags

from cloud import command_line, job_spec
from cloud.job_spec import JobSpec, Role
from cloud.local.command import Ports
from cloud.local.launch import Launch, check
from cloud.local.supervisor import Limits
from cloud.node import meeting, places
from cloud.node.meeting import FirstMachine, Hello, OtherMachine, OtherSizeError
from cloud.node.places import Place
from cloud.node.shares import Shares
from tfps.cluster.tf_config import LAST_PORT
from tfps.errors import EXIT_RESIZED, UserError
from tfps.job_dir.size import Size

_PORT = 2222
_BESIDE = "beside"  # the chief: the worker that is no task of the launcher's
_FLAGS = flags.FlagValues()


def _define_flags() -> None:
    for name, default, text in (
        ("workers_per_node", 1, "Workers on each machine."),
        ("ps_per_node", 1, "ps on each machine; 0 for --mode.name=allreduce."),
        ("workers", None, "Workers on all machines together, instead."),
        ("ps", None, "ps on all machines together, instead."),
        ("port", 0, "Port of the first machine, at which all meet; 0: MASTER_PORT, else 2222."),
        ("first_port", 0, "Ports of a machine's tasks, from this one on; 0: free ones."),
        ("meet_seconds", 600, "How long machines wait for each other."),
        ("max_restarts", 3, "Restarts of a task that dies, until it has run ten minutes."),
        ("grace_seconds", 30, "Time for the chief to end after Ctrl-C or SIGTERM."),
    ):
        most = LAST_PORT if name.endswith("port") else None
        flags.DEFINE_integer(name, default, text, 0, most, flag_values=_FLAGS)
    text = "The machines: env (by variables), a file with a host per line, or HOST,HOST."
    flags.DEFINE_string("nodes", places.FROM_ENVIRONMENT, text, flag_values=_FLAGS)
    text = "Directory of the tasks' logs; default: JOB_DIR/logs if it is local."
    flags.DEFINE_string("log_dir", None, text, flag_values=_FLAGS)
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=_FLAGS)


_define_flags()


def main(argv: Sequence[str]) -> int:
    """Runs this machine's tasks; returns the chief's exit code, 2 for a user's mistake, or 3."""
    return command_line.run_launcher(argv, _FLAGS, "python -m cloud.node", __doc__ or "", _run)


def _run(arguments: tuple[str, ...]) -> int:
    place = places.find(_FLAGS.nodes, os.environ)
    shares = _shares(place)
    spec = job_spec.with_default(_spec(shares, arguments), False)
    check(spec)
    # Launchers may share a terminal, as those of mpirun do.
    tasks = sum(_counts(shares, place, spec).values())
    with Launch.begin(spec, _FLAGS.log_dir, tasks, is_live=False) as launch:
        machine = _Machine(place, spec, launch, _checksum(shares, spec.arguments))
        return launch.run_in_sizes(
            Size(shares.workers, shares.ps), machine.run, lambda: machine.link.new_size()
        )


class _Machine:
    """This machine's part of a job."""

    link: FirstMachine | OtherMachine  # to the others

    def __init__(self, place: Place, spec: JobSpec, launch: Launch, checksum: str):
        """`checksum` is of what the launcher was started with."""
        self._place = place
        self._checksum = checksum
        self._has_run = False
        self._spec = spec
        self._launch = launch

    def run(self, size: Size) -> int:
        """Runs its tasks until the job ends, or is to have another size."""
        place, launch, shares = self._place, self._launch, Shares(self._place.nodes, *size)
        spec = job_spec.resized(self._spec, size)
        self.link = self._linked()  # before free ports are drawn, of which its own could be one
        self._has_run = True
        with contextlib.ExitStack() as stack:
            try:
                ports = stack.enter_context(_ports(_counts(shares, place, spec)))
            except UserError as error:
                self.link.tell_end(error.exit_code)
                raise
            try:
                addresses = self.link.meet(Hello(place.rank, self._checksum, size, ports))
            except OtherSizeError:
                return EXIT_RESIZED
            if beside := addresses.get(_BESIDE):
                own = f"--chief_worker_port={beside[0].rpartition(':')[2]}"
                spec = dataclasses.replace(spec, arguments=(*spec.arguments, own))
            cluster = meeting.cluster_of(addresses)
            launch.say_what(cluster)
            mine = shares.indices(place.rank)
            planned = [
                each
                for each in launch.commands(cluster, spec)
                if each.index in mine.get(each.job, range(0))
            ]
            others = len(cluster.workers) - len(mine["worker"]) + len(beside or ())
            limits = Limits(_FLAGS.grace_seconds, spec.restarts)
            return launch.run(planned, limits, others, link=self.link)

    def _linked(self) -> FirstMachine | OtherMachine:
        place, launch, port = self._place, self._launch, _port(os.environ)
        launch.say(f"machine {place.rank} of {place.nodes}; the first is {place.first}:{port}")
        if place.rank:
            return OtherMachine(place, port, launch.say, _FLAGS.meet_seconds)
        return FirstMachine(
            *(place, port, launch.say, _FLAGS.meet_seconds, launch.new_size),
            is_first_run=not self._has_run,
        )


def _counts(shares: Shares, place: Place, spec: JobSpec) -> dict[str, int]:
    """Number of ports that a machine needs, by job."""
    beside = {_BESIDE: 1} if spec.chief_works and not place.rank else {}
    return shares.counts(place.rank) | beside


def _port(environ: Mapping[str, str]) -> int:
    """Where the machines meet."""
    text = str(_FLAGS.port or environ.get("MASTER_PORT") or _PORT)
    if not text.isdecimal() or not 0 < int(text) <= LAST_PORT:
        raise UserError(f"port {text}, at which all machines meet: name one from 1 to {LAST_PORT}")
    return int(text)


def _shares(place: Place) -> Shares:
    ps = _FLAGS.ps_per_node * place.nodes if _FLAGS.ps is None else _FLAGS.ps
    workers = _FLAGS.workers
    if workers is None:
        # Without ps the chief trains as a worker does, and takes the place of one.
        workers = max(_FLAGS.workers_per_node * place.nodes - (not ps), 0)
    return Shares(place.nodes, workers, ps)


def _spec(shares: Shares, arguments: tuple[str, ...]) -> JobSpec:
    totals = {"chief": 1, "worker": shares.workers, "ps": shares.ps}
    roles = tuple(Role(job, replicas) for job, replicas in totals.items() if replicas)
    return JobSpec("node", arguments, roles, restarts=_FLAGS.max_restarts)


@contextlib.contextmanager
def _ports(counts: Mapping[str, int]) -> Iterator[dict[str, list[int]]]:
    """Ports for a machine's tasks by job, held where they are free ones."""
    total = sum(counts.values())
    with contextlib.ExitStack() as stack:
        if first := _FLAGS.first_port:
            who = f"this machine's {total} tasks"
            numbers = list(job_spec.ports_from(first, total, who))
        else:
            numbers = stack.enter_context(Ports(total)).numbers
        at = iter(numbers)
        yield {job: [next(at) for _ in range(count)] for job, count in counts.items()}


def _checksum(shares: Shares, arguments: Sequence[str]) -> str:
    what = [*shares, *arguments]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
