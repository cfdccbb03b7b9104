"""Trains on this machine's GPUs, checks what must hold, measures: `make gpu`.

Everything is one line of `--output`; the same command resumes after an interruption. See
docs/gpu.md.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import machine
from benchmarks.datasets import ROOT
from benchmarks.failure import Failed
from benchmarks.gpu import nvidia_smi
from benchmarks.gpu.cases import TORCH, Case, Setup, planned
from benchmarks.gpu.checks import all_checks
from benchmarks.gpu.nvidia_smi import Gpu
from benchmarks.gpu.report import report, verdict
from benchmarks.gpu.rounds import Rounds, minutes, turns_left
from benchmarks.results import Results
from benchmarks.suite import LEAST_SECONDS, absent, names, stop

_COUNT_GPUS = "import tensorflow as t; print(len(t.config.list_physical_devices('GPU')))"
_COUNT_SECONDS = 300.0

Work = Sequence[tuple[Case, Setup]]


def main() -> int:
    """Measures what is missing, prints the report; returns the exit code."""
    flags = parse()
    signal.signal(signal.SIGTERM, stop)
    try:
        check(flags)
        gpus = usable(nvidia_smi.read_gpus(), os.environ)
        work = list(planned(len(gpus), flags.only, has_nccl=not flags.rehearse))
        check_work(flags, work, gpus)
        results = Results(flags.output, Case)
        results.begin(settings(flags, gpus))
        missing = len(turns_left(results, work, flags.runs))
        print(f"{missing} things to train, about {minutes(results, missing)} minutes", flush=True)
        failures = Rounds(flags, [str(gpu.index) for gpu in gpus], results).train(work)
        text = report(results)
        flags.report.write_text(text)
        print(f"\n{text}\n{verdict(all_checks(results))}; the report: {flags.report}")
        for failure in failures:
            print(f"failed: {failure}", file=sys.stderr)
        is_well = not failures and all(found.passed is not False for found in all_checks(results))
        return 0 if is_well else 1
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", file=sys.stderr)
        return 128 + signal.SIGINT


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__.split("\n\n")[0], allow_abbrev=False
    )
    add = parser.add_argument
    kept = ROOT / "runs/gpu"
    add("--output", type=pathlib.Path, default=kept / "results.jsonl", help="JSON lines; kept")
    add("--report", type=pathlib.Path, default=kept / "report.md", help="markdown to write")
    add("--data", type=pathlib.Path, default=kept / "data", help="kept datasets, some 1 GB")
    add("--only", type=names, default=[], help="parts of `CASE: SETUP`, such as criteo float32")
    add("--runs", type=int, default=3, help="of every case and setup")
    add("--seconds", type=float, default=10.0, help="least window of a run")
    add("--warm_seconds", type=float, default=5.0, help="of training before the window")
    add("--limit_seconds", type=float, default=900.0, help="for anything that is started")
    add("--batch", type=int, default=4096, help="records per step of a worker, for speed")
    add("--torch_python", default=sys.executable, help="interpreter with torch")
    add("--rehearse", action="store_true", help="on the CPU with few records: tries this program")
    return parser.parse_args()


def check(flags: argparse.Namespace) -> None:
    """Refuses flags that could only fail later."""
    if flags.runs < 1 or flags.batch < 1:
        raise Failed(f"--runs={flags.runs} --batch={flags.batch}: both must be at least 1")
    if flags.seconds < LEAST_SECONDS:
        raise Failed(f"--seconds={flags.seconds} must be at least {LEAST_SECONDS}")
    for name in ("output", "report"):
        parent = getattr(flags, name).resolve().parent
        if not parent.is_dir():
            raise Failed(f"--{name}={getattr(flags, name)}: there is no directory for it")


def usable(gpus: Sequence[Gpu], environ: Any) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, by index or by NVIDIA's name.

    Raises:
        Failed: If there is none, or one is named that is not there.
    """
    if not gpus:
        raise Failed("nvidia-smi lists no GPU: run this on a machine that has one")
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return list(gpus)
    named = [each.strip() for each in environ["CUDA_VISIBLE_DEVICES"].split(",") if each.strip()]
    known = {str(gpu.index): gpu for gpu in gpus} | {gpu.uuid: gpu for gpu in gpus}
    if not named or not set(named) <= set(known):
        raise Failed(
            f"CUDA_VISIBLE_DEVICES={','.join(named)} names other GPUs than nvidia-smi lists "
            f"({', '.join(str(gpu.index) for gpu in gpus)}); unset it, or name some of these"
        )
    return [known[name] for name in named]


def check_work(flags: argparse.Namespace, work: Work, gpus: Sequence[Gpu]) -> None:
    """Refuses to measure nothing, or with a PyTorch or TensorFlow that cannot."""
    if not work:
        raise Failed(f"--only={','.join(flags.only)}: no case and setup has that in its name")
    if any(setup.mode == TORCH for _, setup in work):
        if shutil.which(flags.torch_python) is None:
            raise Failed(f"--torch_python={flags.torch_python}: no such program")
        if absent(flags.torch_python, {"torch"}):
            raise Failed(
                f"--torch_python={flags.torch_python} has no torch; name an interpreter that has, "
                "or choose without it by --only"
            )
    if flags.rehearse:
        return
    found = subprocess.run(
        [sys.executable, "-c", _COUNT_GPUS],
        capture_output=True,
        text=True,
        timeout=_COUNT_SECONDS,
        check=False,
    )
    if found.returncode or int(found.stdout) < len(gpus):
        seen = found.stdout.strip() or found.stderr[-300:]
        raise Failed(
            f"TensorFlow of {sys.executable} sees {seen} of {len(gpus)} GPUs; `make gpu` installs "
            "one with CUDA, or do `pip install 'tensorflow[and-cuda]'` there"
        )


def settings(flags: argparse.Namespace, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """What has to be equal for all runs of a file."""
    facts: dict[str, Any] = machine.facts(flags.torch_python)
    facts["GPUs"] = "; ".join(f"{gpu.name}, {gpu.memory_total:,} MiB" for gpu in gpus)
    facts["driver"] = gpus[0].driver
    kept = ("batch", "seconds", "warm_seconds", "rehearse")
    return {"machine": facts, **{name: getattr(flags, name) for name in kept}}


if __name__ == "__main__":
    sys.exit(main())
