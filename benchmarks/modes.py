"""Measures what each mode costs in speed and quality: `python -m benchmarks.modes`.

Every mode, and Keras's `fit` in one process, trains the same records with the same settings, seed
after seed, in turn; `--set_rounds`
changes those of the modes that average the workers' gradients, as docs/modes.md says to. A run is a
line of `--output`; the same command resumes after an interruption. With `--straggler` one worker is
stopped for 0.2 s again and again, and only speed is of interest.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.datasets import ROOT
from benchmarks.systems import task_of
from tfps.experiment import field_flags

MODES = {
    "local": [],
    "async": [],
    "async, 4 together": ["--mode.batches_per_exchange=4"],
    "sync": [],
    "sync, 1 backup": ["--mode.backup_workers=1"],
    "bounded": ["--mode.max_staleness=4"],
    "local_sgd": ["--mode.sync_every=8"],
    "allreduce": [],
}
FIT = "fit"
_OF_ROUNDS = ("sync", "sync, 1 backup", "allreduce")
_STOP_SECONDS, _RUN_SECONDS = 0.2, 0.05
_LIMIT_SECONDS = 7200


def main() -> int:
    """Measures and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--config", default="configs/criteo.py", help="its fields are flags: --data.train=DIR")
    add("--set_rounds", action="append", default=[], help="more overrides for sync and allreduce")
    add("--modes", type=lambda text: text.split(";"), default=[FIT, *MODES])
    add("--workers", type=int, default=4)
    add("--ps", type=int, default=2)
    add("--epochs", type=int, default=3)
    add("--seeds", type=int, default=5)
    add("--straggler", action="store_true", help="slow worker 0 down")
    add("--output", type=pathlib.Path, required=True, help="file to which runs are added")
    fields, rest = field_flags.split(sys.argv[1:])
    flags = parser.parse_args(rest)
    done = read(flags.output)
    flags.data = [field for field in fields if field.startswith(("data.train=", "data.eval="))]
    modes = [mode for mode in flags.modes if mode != FIT or len(flags.data) > 1]
    for seed, mode in itertools.product(range(flags.seeds), modes):
        overrides = [field for field in fields if field not in flags.data]
        overrides += flags.set_rounds if mode in _OF_ROUNDS else []
        wanted = {"config": flags.config, "mode": mode, "set": overrides, "seed": seed}
        wanted |= {"slowed": flags.straggler}
        if any(wanted.items() <= run.items() for run in done):
            continue
        run = {**wanted, **measure(flags, mode, overrides, seed)}
        done.append(run)
        with flags.output.open("a") as file:
            file.write(json.dumps(run) + "\n")
    print("\n".join(table(done)))
    return 0


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """The runs of a file, none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(
    flags: argparse.Namespace, mode: str, overrides: list[str], seed: int
) -> dict[str, Any]:
    """Trains once; returns speed, and AUC after every epoch."""
    if mode == FIT:
        return measure_fit(flags, overrides, seed)
    job_dir = pathlib.Path(tempfile.mkdtemp(prefix="modes-"))
    name = mode.partition(",")[0]
    trainer = [
        *(f"--config={flags.config}", f"--mode.name={name}", *MODES[mode]),
        *(f"--job_dir={job_dir}", f"--train.epochs={flags.epochs}", f"--train.seed={seed}"),
        *(f"--{override}" for override in (*flags.data, *overrides)),
    ]
    launcher = ["trainer.task"]
    if name == "allreduce":  # the chief is a replica too
        launcher = ["cloud.local", f"--workers={flags.workers - 1}", "--ps=0", "--"]
    elif name != "local":
        launcher = ["cloud.local", f"--workers={flags.workers}", f"--ps={flags.ps}", "--"]
    command = [sys.executable, "-m", *launcher, *trainer]
    try:
        with (job_dir / "output").open("w") as output:
            program = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
            slowed = slow_down(program.pid) if flags.straggler else contextlib.nullcontext()
            try:
                with slowed:
                    code = program.wait(_LIMIT_SECONDS)
            finally:  # of one that takes too long
                program.terminate()
                program.wait()
        if code:
            raise RuntimeError(f"{' '.join(command)}: {(job_dir / 'output').read_text()}")
        return summary(json.loads((job_dir / "report.json").read_text()))
    finally:
        shutil.rmtree(job_dir)


def measure_fit(flags: argparse.Namespace, overrides: list[str], seed: int) -> dict[str, Any]:
    """Trains once by Keras's `fit`; returns speed, and AUC after every epoch."""
    overrides = [*overrides, f"train.epochs={flags.epochs}", f"train.seed={seed}"]
    command = [
        *(sys.executable, "-m", "benchmarks.fit_task", f"--config={flags.config}"),
        *(f"--{override}" for override in (*flags.data, *overrides)),
    ]
    program = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
    )
    if program.returncode:
        raise RuntimeError(f"{' '.join(command)}: {program.stderr}")
    found: dict[str, Any] = json.loads(program.stdout.splitlines()[-1])
    return found


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a run's report."""
    examples, speed = report["examples"], report["examples_per_second"]
    if examples["skipped"]:
        raise RuntimeError(f"{examples['skipped']} records were skipped")
    points = []
    for evaluation in report["evaluations"]:
        trained = evaluation["epoch"] * examples["per_epoch"]
        points.append([trained, trained / speed, evaluation["auc"]])
    return {
        "workers": report["cluster"]["workers"],
        "examples_per_second": speed,
        "staleness": report["staleness"]["mean"],
        "rounds": report["rounds"],
        "points": points,  # records, seconds of training, AUC
    }


@contextlib.contextmanager
def slow_down(launcher: int) -> Iterator[None]:
    """Stops worker 0 of a local cluster for 0.2 s again and again."""
    is_over = threading.Event()

    def work() -> None:
        worker = None
        while not is_over.wait(_RUN_SECONDS):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker = worker or _worker(launcher)
                if worker:
                    worker.suspend()
                    is_over.wait(_STOP_SECONDS)
                    worker.resume()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _worker(launcher: int) -> psutil.Process | None:
    children = psutil.Process(launcher).children(recursive=True)
    return next((each for each in children if task_of(each) == "worker-0"), None)


def table(runs: list[dict[str, Any]]) -> list[str]:
    """For each mode, medians over the seeds, with least and greatest."""
    lines = ["| config | mode | set | slowed | runs | examples/s | AUC |"]
    lines.append("|---|---|---|---|---|---|---|")
    by_case: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in runs:
        slowed = "yes" if run["slowed"] else ""
        case = (run["config"], run["mode"], " ".join(run["set"]), slowed)
        by_case.setdefault(case, []).append(run)
    for case, mine in by_case.items():
        speeds = [run["examples_per_second"] for run in mine]
        aucs = [run["points"][-1][2] for run in mine if run["points"]]
        found = _spread(aucs, ".5f") if aucs else ""
        lines.append(f"| {' | '.join(case)} | {len(mine)} | {_spread(speeds, ',.0f')} | {found} |")
    return lines


def _spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


if __name__ == "__main__":
    sys.exit(main())
