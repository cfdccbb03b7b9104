"""The batch script of a job on Slurm."""

import dataclasses
import math
import re
import shlex
from collections.abc import Iterator, Sequence

from cloud.job_spec import JobSpec, Role, grace_seconds, ports_from, refuse_idle_gpus
from cloud.slurm import placement, task
from cloud.slurm.placement import Placement
from cloud.slurm.sender import MARK
from tfps.cluster.spec import JOBS
from tfps.errors import EXIT_RESIZED, UserError
from tfps.job_dir import size

_MARGIN_SECONDS = 60  # behind the chief's grace: the servers end, the job is queued again
_EARLY_SECONDS = 60  # by which Slurm may send a signal too early
_LOWEST_PORT = 22220
_HIGHEST_PORT = 32767  # above it Linux gives ports to anybody
_MIB = 1 << 20
_ANY_GPU = "gpu"
_LONG_OPTION = re.compile(r"[a-z][a-z-]+")
# Options of sbatch that the user does not add: what says them, or why a job cannot have them.
_REFUSED = {
    "partition": "--partition says it",
    "account": "--account says it",
    "qos": "--qos says it",
    "time": "--timeout_seconds says it",
    "constraint": "--machine=type=… says it",
    "mincpus": "--machine=cpus=… says it",
    "tmp": "--machine=disk_gb=… says it",
    "gpus-per-node": "--machine=worker:accelerator=… says it",
    "gres": "--machine=worker:accelerator=… says it",
    "gpus": "--machine=worker:accelerator=… says it",
    "array": "each job has a --job_dir of its own",
    "wrap": "a job is a script",
    "ntasks": "--workers and --ps say how many tasks there are",
    "ntasks-per-node": "--workers, --ps and --nodes say where tasks run",
    "export": "tasks need the script's environment; --env adds to it",
    "no-requeue": "a job is queued again when its time is over",
    "parsable": "the job's number is read from what sbatch prints",
    "test-only": "--dry_run prints the script",
    "wait": "--wait waits for the job",
}

_BODY = """
{setup}set -u

# To the tasks themselves: an srun that gets SIGTERM kills them.
end_tasks() {{
  scancel --signal=TERM "$SLURM_JOB_ID"
}}

# The time is almost over: the chief saves, and the job is queued again.
is_over=
trap 'is_over=yes; end_tasks' USR1
# Slurm ends the job, and has signalled the tasks itself; this script waits for them.
trap 'is_over=; end_tasks() {{ :; }}' TERM

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export {hosts}="${{hosts[*]}}"
{exports}
run=$(mktemp -d)
export {new_size}="$run/size" # the chief is on this node

# A job that is queued again has the numbers of tasks that it had at last.
kept={name}-$SLURM_JOB_ID.tasks
[[ -s $kept ]] && {tasks}=$(< "$kept")

# start JOB OPTION…: the tasks of one role, each on the node where the others look for it.
start() {{
  {python} -m cloud.slurm.task nodes "$1" > "$run/$1" || exit 2
  SLURM_HOSTFILE="$run/$1" srun --distribution=arbitrary --ntasks="$(wc --lines < "$run/$1")" \\
    --nodes="$(sort --unique "$run/$1" | wc --lines)" --overlap --cpu-bind=none --mpi=none \\
    --kill-on-bad-exit=0 --no-kill --wait=0 --open-mode=append "${{@:2}}" \\
    {python} -m cloud.slurm.task run "$1" {command} &
}}

before=
while true; do
  {starts}
  chief=$!

  while kill -0 "$chief" 2> /dev/null; do
    if [[ $is_over ]]; then
      sleep 5
      end_tasks # again: one may have started since
    else
      wait "$chief" # or for a signal
    fi
  done
  wait "$chief"
  code=$?
  pause=1
  while [[ $(jobs -pr) ]]; do
    end_tasks
    sleep "$pause"
    pause=5 # then again: one may have started since
  done

  if [[ $code == {resized} && -s ${new_size} ]]; then
    before=${tasks}
    {tasks}=$({python} -m cloud.slurm.task resize "${new_size}") || exit 2
    rm "${new_size}"
    echo "the run has another size: beginning again with ${tasks}, of $before"
  elif [[ $code == 2 && $before ]]; then
    echo "the run cannot have ${tasks}: going back to $before"
    {tasks}=$before
    before=
  else
    break
  fi
  echo "${tasks}" > "$kept"
done
rm -r "$run"
if [[ $is_over && $code == 143 ]]; then
  echo "the time is almost over; the job is queued again and resumes from the last checkpoint"
  scontrol requeue "$SLURM_JOB_ID"
else
  rm -f "$kept"
fi
exit "$code"
"""


@dataclasses.dataclass(frozen=True)
class Allocation:
    """What to ask Slurm for, besides the job's own; empty texts are its defaults."""

    nodes: int = 0  # 0 for one per worker, with that next to the chief
    partition: str = ""
    account: str = ""  # who pays
    qos: str = ""
    # The first of as many ports as tasks; 0 chooses it by the job's number, since jobs share nodes
    # where a partition has OverSubscribe=FORCE.
    first_port: int = 0
    python: str = "python"
    options: Sequence[str] = ()  # further ones of sbatch, `NAME` or `NAME=VALUE`
    setup: Sequence[str] = ()  # lines of bash before all else


def script(spec: JobSpec, allocation: Allocation) -> str:
    """Renders a job.

    Nodes are exclusive: whoever reaches a task's port can run code there, and no other job then
    takes a port. All tasks of a node share its processors; GPUs are given to tasks.
    """
    _check(spec)
    tasks = {job: spec.replicas(job) for job in JOBS}
    workers = tasks["worker"] + spec.chief_works
    nodes = [str(node) for node in range(allocation.nodes or max(1, workers))]
    placed = Placement(nodes, tasks, allocation.first_port, spec.chief_works)
    own = list(_options(spec, allocation, placed))
    options = [*own, *_further_options(allocation.options, own)]
    head = "\n".join(map(_directive, options))
    body = _BODY.format(
        setup=_setup(allocation.setup),
        hosts=placement.HOSTS,
        tasks=placement.TASKS,
        name=shlex.quote(spec.name),
        new_size=size.VARIABLE,
        resized=EXIT_RESIZED,
        exports="\n".join(_exports(spec, allocation, tasks)),
        python=shlex.quote(allocation.python),
        command=shlex.join([spec.module, *spec.arguments]),
        starts="\n  ".join(_starts(spec)),
    )
    return f"#!/bin/bash\n{head}\n{body}"


def _check(spec: JobSpec) -> None:
    for name, hint in {
        "image": "tasks run in this environment",
        "package": "tasks run in this directory",
        "network": "nodes have theirs",
        "service_account": "tasks run as the user; --account says who pays",
        "queue_seconds": "a job waits for nodes without a limit",
        "spot": "name a preemptible --partition or --qos",
    }.items():
        if getattr(spec, name):
            raise UserError(f"--target=slurm takes no --{name}: {hint}; leave it out")
    for role in spec.roles:
        if role.disk_type:
            raise UserError(f"--target=slurm takes no disk_type ({role.job}); leave it out")
        if role.accelerator and role.job == "evaluator":
            raise UserError(
                f"evaluator: accelerator={role.accelerator}, but on Slurm GPUs are for workers; "
                "give them with --machine=worker:accelerator=…"
            )
    refuse_idle_gpus(spec)
    kinds = sorted({role.accelerator for role in spec.roles if role.accelerator})
    if len(kinds) > 1:
        raise UserError(
            f"GPUs of two kinds, {' and '.join(kinds)}: all nodes of a Slurm job are asked for the "
            "same; name one kind for all roles, or gpu for any"
        )
    shortest = grace_seconds(spec) + _MARGIN_SECONDS + _EARLY_SECONDS
    if spec.timeout_seconds and spec.timeout_seconds <= shortest:
        raise UserError(
            f"--timeout_seconds={spec.timeout_seconds}: Slurm may say {shortest} s before the end "
            "that the time is almost over, and the job would be queued again without having "
            "trained; give more"
        )
    if len({role.machine for role in spec.roles}) > 1:
        raise UserError(
            "a machine type is a feature that every node of a Slurm job has; give one for all roles"
        )


def _directive(option: str) -> str:
    """An option of sbatch as a line of the script."""
    name, equals, value = option.partition("=")
    if not value.isprintable():
        raise UserError(
            f"--{name}={value!r}: an option of sbatch is one line of a script; write it without "
            "line breaks and control characters"
        )
    return f"#SBATCH --{name}{equals}{shlex.quote(value) if equals else ''}"


def _further_options(given: Sequence[str], own: Sequence[str]) -> list[str]:
    """Options of sbatch that the user adds to those that a job has anyway."""
    taken = {option.partition("=")[0] for option in own} | _REFUSED.keys()
    options = [option.removeprefix("--") for option in given]
    for option in options:
        name = option.partition("=")[0]
        if not _LONG_OPTION.fullmatch(name):
            raise UserError(
                f"--sbatch={option!r}: write a long option of sbatch, such as "
                "--sbatch=reservation=NAME or --sbatch=exclude=NODES"
            )
        if name in taken:
            reason = _REFUSED.get(name, "a job sets it itself")
            raise UserError(f"--sbatch={option}: {reason}; leave it out")
    return options


def _setup(lines: Sequence[str]) -> str:
    """The lines that prepare the environment, which tasks inherit; one that fails ends the job."""
    for line in lines:
        if not line.replace("\t", " ").isprintable():
            raise UserError(f"--setup={line!r}: write one line of bash each time")
    if not lines:
        return ""
    return "\n".join(["set -e # the lines of --setup", *lines, "set +e", ""])


def _first_port(spec: JobSpec, allocation: Allocation) -> str:
    """The chief's port, as a word of bash."""
    ports = spec.tasks + spec.chief_works
    if not allocation.first_port:
        places = max(1, (_HIGHEST_PORT + 1 - _LOWEST_PORT) // ports)
        return f'"$(({_LOWEST_PORT} + SLURM_JOB_ID % {places} * {ports}))"'
    first, *_ = ports_from(allocation.first_port, ports, f"{ports} tasks", least=1024)
    return str(first)


def _options(spec: JobSpec, allocation: Allocation, placed: Placement) -> Iterator[str]:
    """The options of sbatch, not quoted."""

    def most(field: str) -> int:
        return placed.most_on_a_node({role.job: getattr(role, field) for role in spec.roles})

    yield f"job-name={spec.name}"
    yield f"output={spec.name}-%j.log"
    yield f"nodes={len(placed.hosts)}"
    yield "exclusive"
    yield f"mem={math.ceil(most('memory_bytes') / _MIB)}M"  # 0 is all there is
    if cpus := most("cpus"):
        yield f"mincpus={cpus}"
    if disk := most("disk_gb"):
        yield f"tmp={disk}G"
    if gpus := most("accelerators"):
        (kind,) = {role.accelerator for role in spec.roles if role.accelerator}
        yield f"gpus-per-node={gpus if kind == _ANY_GPU else f'{kind}:{gpus}'}"
    if machine := spec.roles[0].machine:
        yield f"constraint={machine}"
    for name in ("partition", "account", "qos"):
        if value := getattr(allocation, name):
            yield f"{name}={value}"
    yield "comment=" + ",".join([MARK, *(f"{key}={value}" for key, value in spec.labels.items())])
    if spec.timeout_seconds:
        yield f"time={math.ceil(spec.timeout_seconds / 60)}"
    yield "requeue"
    yield "no-kill"
    yield "open-mode=append"
    yield f"signal=B:USR1@{grace_seconds(spec) + _MARGIN_SECONDS}"


def _exports(spec: JobSpec, allocation: Allocation, tasks: dict[str, int]) -> Iterator[str]:
    own = {
        placement.TASKS: placement.exported(tasks),
        task.RESTARTS: str(spec.restarts),
        "PYTHONUNBUFFERED": "1",
    }
    if spec.chief_works:
        own[placement.CHIEF_WORKS] = "1"
    for name, value in {**spec.environment, **own}.items():
        yield f"export {name}={shlex.quote(value)}"
    yield f"export {placement.FIRST_PORT}={_first_port(spec, allocation)}"


def _starts(spec: JobSpec) -> Iterator[str]:
    """Servers first and the chief last, which writes to the job's own log."""
    for role in sorted(spec.roles, key=lambda role: role.job == "chief"):
        options = [] if role.job == "chief" else [f"--output={spec.name}-%j-{role.job}-%t.log"]
        options.append(_gpus(role))
        yield f"start {role.job} {shlex.join(options)}"


def _gpus(role: Role) -> str:
    if not role.accelerators:
        return "--gres=none"
    kind = "" if role.accelerator == _ANY_GPU else f"{role.accelerator}:"
    return f"--gpus-per-task={kind}{role.accelerators}"
