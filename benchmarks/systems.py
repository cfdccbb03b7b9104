"""How each system is started, and what its processes and its progress lines look like."""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence

import psutil

from benchmarks import datasets
from benchmarks.cases import FIT, FLAGS_OF_PARTS, STEP, TFPS, UNWATCHED, Case

_LOG = re.compile(r"--tensorflow_log=.*/(?P<task>[a-z]+-\d+)\.log")
_PROGRESS = re.compile(
    r"epoch 1/1: (?P<examples>[\d,]+) of [\d,]+ records, .*loss (?P<loss>[^\s,]+)"  # of tfps
    r"|^TRAINED (?P<peer_examples>\d+) loss (?P<peer_loss>\S+)"
)


@dataclasses.dataclass(frozen=True)
class System:
    """A system on one case.

    Attributes:
        command: Starts it; it trains until it is ended.
        root: The task of the process that is started: `launcher` when it only starts others.
        environ: Variables beside those of this process; a GPU is seen only where they say so.
    """

    command: Sequence[str]
    root: str
    environ: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"CUDA_VISIBLE_DEVICES": "-1"}
    )


def system(
    name: str, case: Case, flags: argparse.Namespace, data: pathlib.Path, job_dir: pathlib.Path
) -> System:
    """The system of a name, on a case.

    Args:
        name: One of `cases.SYSTEMS`.
        case: What it trains.
        flags: Of the suite: `workers`, threads and `peer_python`.
        data: The case's dataset.
        job_dir: Where tfps may write.
    """
    threads = [
        f"--intra_op_threads={flags.intra_op_threads}",
        f"--inter_op_threads={flags.inter_op_threads}",
    ]
    if name == FIT:
        given = [*datasets.config_flags(case), f"--data.train={data}", f"--batch={case.batch}"]
        return System([sys.executable, "-m", "benchmarks.keras_fit", *given, *threads], "chief-0")
    if name not in TFPS:
        joined = re.sub("^(torch|torchrec)-(rpc|ddp|dmp)", r"\1_\2", name)
        peer, _, kind = joined.partition("-")
        option = {"": [], "files": ["--input=files"]}.get(kind, [f"--lib={kind}"])
        command = [
            *(flags.peer_python, "-m", "benchmarks.peers.start", peer, f"--data={data}"),
            *(f"--model={case.model}", f"--rows={case.rows}", f"--batch={case.batch}"),
            *(f"--optimizer={case.optimizer}", f"--workers={flags.workers}", *threads, *option),
        ]
        return System(command, "chief-0" if peer in ("tutorial", "fit") else "launcher")
    job = [
        *(*datasets.config_flags(case), f"--train.batch_size={case.batch}"),
        *("--train.epochs=1", f"--data.train={data}", f"--job_dir={job_dir}"),
        *(*threads, "--progress=lines", "--progress_seconds=1"),
    ]
    if name == STEP:
        return System([sys.executable, "-m", "trainer.task", "--mode.name=local", *job], "chief-0")
    job += [flag for part in name.split("-") for flag in FLAGS_OF_PARTS.get(part, ())]
    if name == "tfps-allreduce":  # the chief is one of those that compute
        launcher = [f"--workers={flags.workers - 1}", "--ps=0"]
        job.append("--mode.name=allreduce")
    else:
        ps = name.removeprefix("tfps-").partition("ps")[0]
        launcher = [f"--workers={flags.workers}", f"--ps={ps}"]
    if name == UNWATCHED:
        launcher.append("--module=benchmarks.unwatched_task")
    return System([sys.executable, "-m", "cloud.local", *launcher, "--", *job], "launcher")


def progress(line: str) -> tuple[int, float] | None:
    """Examples trained so far and a recent loss, if a line of the output says so."""
    match = _PROGRESS.search(line)
    if not match:
        return None
    examples = match["examples"] or match["peer_examples"]
    return int(examples.replace(",", "")), float(match["loss"] or match["peer_loss"])


def tasks(process: int, root: str) -> dict[str, int]:
    """The process ids of a system by task.

    Args:
        process: The process that was started.
        root: Its task.
    """
    found = {root: process}
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
            # What a task itself started has its environment, and comes after it.
            found.setdefault(task_of(child) or f"other-{child.pid}", child.pid)
    return found


def task_of(process: psutil.Process, environ: Mapping[str, str] | None = None) -> str | None:
    """What a process is, such as "worker-0": from the TF_CONFIG that it was started with.

    A task of `cloud.local` is a fork, and has its log's name instead. `environ` is the process's,
    where that is known.
    """
    if config := (environ or process.environ()).get("TF_CONFIG"):
        task = json.loads(config)["task"]
        return f"{task['type']}-{task['index']}"
    logs = [_LOG.fullmatch(each) for each in process.cmdline()]
    return next((log["task"] for log in logs if log), None)
