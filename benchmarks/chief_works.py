"""Measures what a worker beside the chief is worth, and takes: `python -m benchmarks.chief_works`.

The jobs have one worker and one ps. Their steps wait without using the CPU, since machines of their
own for all tasks are what is imagined here, and cores are few. Then a chief that computes without
end and its worker, which does so too, share one core. See docs/flags.md.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import psutil

from benchmarks.datasets import ROOT
from tests import counting_task
from trainer.chief.worker_keeper import Orders

_BATCH = 50
_SHARD_STEPS = 50
_LIMIT_SECONDS = 600
_COMPUTES = "while True: pass"


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--runs", type=int, default=3, help="of each kind, in turn")
    add("--steps", type=int, default=200, help="of a run")
    add("--step_seconds", type=float, default=0.2)
    add("--seconds", type=float, default=10.0, help="in which a core is shared")
    flags = parser.parse_args()
    task = counting_task.CountingTask(records=flags.steps * _BATCH, step_seconds=flags.step_seconds)
    ratios = []
    with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as directory:
        data = pathlib.Path(directory, "data")
        sizes = [_SHARD_STEPS * _BATCH] * (flags.steps // _SHARD_STEPS)
        task = dataclasses.replace(task, records=sum(sizes))
        counting_task.write(data, task, sizes)
        for run in range(flags.runs):
            without, with_it = (
                speed(task, data, pathlib.Path(directory, f"{run}-{works}"), works)
                for works in ("nochief_works", "chief_works")
            )
            ratios.append(with_it / without)
            print(
                f"run {run}: {without:.1f} records/s without, {with_it:.1f} with: "
                f"{ratios[-1]:.2f} times",
                flush=True,
            )
    shares = [chiefs_share(flags.seconds) for _ in range(flags.runs)]
    for name, values in (("speed, times", ratios), ("chief's share of a core", shares)):
        print(
            f"{name}: median {statistics.median(values):.2f}, worst {min(values):.2f}, "
            f"best {max(values):.2f}"
        )
    return 0


def speed(
    task: counting_task.CountingTask, data: pathlib.Path, job_dir: pathlib.Path, works: str
) -> float:
    """Trains all records once; returns records per second.

    Raises:
        RuntimeError: If the job fails, or leaves records out.
    """
    command = [
        *(sys.executable, "-m", "cloud.local", "--workers=1", "--ps=1", "--", f"--{works}"),
        *("--config=tests/counting_task.py", f"--data.train={data}", f"--job_dir={job_dir}"),
        *(f"--task.records={task.records}", f"--task.step_seconds={task.step_seconds}"),
        *(f"--train.batch_size={_BATCH}", "--train.epochs=1", "--train.export=none"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-4000:]}")
    report = json.loads((job_dir / "report.json").read_text())
    examples = report["examples"]
    if (examples["trained"], examples["skipped"]) != (task.records, 0):
        raise RuntimeError(f"not every record was trained: {examples}")
    return float(report["examples_per_second"])


def chiefs_share(seconds: float) -> float:
    """Computes on one core beside a worker that does so; this process's part of both their time."""
    orders = Orders("worker 1", [sys.executable, "-c", _COMPUTES], dict(os.environ), 0, {})
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # which those that it starts have as well
    keeper = subprocess.Popen(
        [sys.executable, "-m", "trainer.chief.worker_keeper", str(os.getpid())],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert keeper.stdin is not None
        json.dump(dataclasses.asdict(orders), keeper.stdin)
        keeper.stdin.close()
        while not (found := psutil.Process(keeper.pid).children()):
            time.sleep(0.01)
        before = time.process_time(), _cpu_seconds(found[0])
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pass
        own = time.process_time() - before[0]
        return own / (own + _cpu_seconds(found[0]) - before[1])
    finally:
        keeper.kill()  # and with it, by Linux, its worker
        keeper.wait()
        os.sched_setaffinity(0, allowed)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
