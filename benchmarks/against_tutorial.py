"""Measures tfps against TensorFlow's own tutorial loop, side by side.

    python benchmarks/against_tutorial.py --peer_python=PEER/bin/python --output=results.json

Both train the DLRM of configs/criteo.py on the same TFRecords, on clusters of the same size on this
machine, in turn: tfps, tutorial, tfps, tutorial, … See benchmarks/README.md.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import psutil
from meter import Meter, Reading, used

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = "configs/criteo.py"
LEAST_WINDOW_SECONDS = 15.0
_PROGRESS = re.compile(r"epoch 1/1: ([\d,]+) of [\d,]+ records, [\d,]+ examples/s, loss (\S+)")
_FIGURES = {  # name in a result: title, and digits after the point
    "examples_per_second": ("examples/s", 0),
    "cpu_seconds_per_million_examples": ("CPU-s per million examples", 1),
    "loopback_bytes_per_example": ("wire bytes per example", 0),
}


class Failed(Exception):  # noqa: N818 - it is what the benchmark has
    """What went wrong and how to mend it, for a person."""


def main() -> int:
    """Measures, prints a table and writes the results; returns the exit code."""
    flags = parse()
    signal.signal(signal.SIGTERM, stop)
    try:
        check(flags)
        with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as scratch:
            data = flags.data or str(pathlib.Path(scratch, "data"))
            prepare(flags, data)
            results = measure(flags, data, pathlib.Path(scratch))
        content = {**settings(flags), "summary": summary(results), "runs": results}
        pathlib.Path(flags.output).write_text(json.dumps(content, indent=1) + "\n")
        print(table(flags, content["summary"]))
        print(disturbance(results))
        return 0
    except (Failed, psutil.NoSuchProcess) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--output", required=True, help="JSON file of the results")
    add("--peer_python", default=sys.executable, help="interpreter with tensorflow and --peer_lib")
    add("--peer_lib", choices=("tf_keras", "keras"), default="tf_keras")
    add("--data", help="dataset directory to use, or to make and keep; default: a temporary one")
    add("--records", type=int, default=5_000_000, help="records to generate, for one epoch of tfps")
    add("--shards", type=int, default=40)
    add("--workers", type=int, default=2)
    add("--ps", type=int, default=1)
    add("--rows", type=int, default=20_000, help="rows of each of the 26 tables")
    add("--batch", type=int, default=512, help="records per step of one worker")
    add("--runs", type=int, default=3, help="runs of each system")
    add("--seconds", type=float, default=20.0, help="least window of the tutorial loop")
    add("--intra_op_threads", type=int, default=1, help="of every process of both systems")
    add("--inter_op_threads", type=int, default=4, help="of every process of both systems")
    return parser.parse_args()


def stop(number: int, _: Any) -> NoReturn:
    """Ends on SIGTERM as on Ctrl-C: what was started is ended first."""
    raise SystemExit(128 + number)


def check(flags: argparse.Namespace) -> None:
    """Refuses flags that could only fail later."""
    for name in ("records", "shards", "workers", "ps", "batch", "runs"):
        if getattr(flags, name) < 1:
            raise Failed(f"--{name}={getattr(flags, name)} must be at least 1")
    if flags.seconds < LEAST_WINDOW_SECONDS:
        raise Failed(f"--seconds={flags.seconds} must be at least {LEAST_WINDOW_SECONDS}")
    parent = pathlib.Path(flags.output).resolve().parent
    if not parent.is_dir():
        raise Failed(f"--output={flags.output}: there is no directory {parent}")
    if shutil.which(flags.peer_python) is None:
        raise Failed(f"--peer_python={flags.peer_python}: no such program")
    found = subprocess.run(
        [
            flags.peer_python,
            "-c",
            "import importlib.util as u, sys;"
            "print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])",
            *("tensorflow", "psutil", flags.peer_lib),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    if missing := found.stdout.split():
        raise Failed(
            f"--peer_python={flags.peer_python} has no {', '.join(missing)}; install it there, or "
            "name another interpreter"
        )


def prepare(flags: argparse.Namespace, data: str) -> None:
    """Generates the dataset, unless it is there."""
    manifest = pathlib.Path(data, "manifest.json")
    if not manifest.exists():
        generate = ["--records", str(flags.records), "--shards", str(flags.shards)]
        print(f"generating {flags.records:,} records", flush=True)
        command = ["trainer.generate", "--output", data, *generate, *config(flags)]
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
        return
    features = {each["name"]: each for each in json.loads(manifest.read_text())["features"]}
    rows = features.get("categoricals", {}).get("vocabulary_size")
    if rows != flags.rows:
        raise Failed(f"--data={data} holds ids of {rows} rows, not --rows={flags.rows}")


def config(flags: argparse.Namespace) -> list[str]:
    """The flags that name the experiment."""
    return [f"--config={CONFIG}", f"--set=task.rows_per_table={flags.rows}"]


def threads(flags: argparse.Namespace) -> list[str]:
    """The thread settings, the same flags in both systems."""
    return [
        f"--intra_op_threads={flags.intra_op_threads}",
        f"--inter_op_threads={flags.inter_op_threads}",
    ]


def measure(
    flags: argparse.Namespace, data: str, scratch: pathlib.Path
) -> dict[str, list[dict[str, Any]]]:
    """Runs both systems in turn."""
    results: dict[str, list[dict[str, Any]]] = {"tfps": [], "tutorial": []}
    for run in range(flags.runs):
        for name, measured in (("tfps", run_tfps), ("tutorial", run_tutorial)):
            directory = scratch / f"{name}-{run}"
            directory.mkdir()
            result = measured(flags, data, directory)
            results[name].append(result)
            figures = ", ".join(
                f"{result[key]:,.{digits}f} {title}" for key, (title, digits) in _FIGURES.items()
            )
            others = result["others_cores"] + result["stolen_cores"]
            print(
                f"run {run + 1} {name}: {figures} ({others:.2f} cores used by others)", flush=True
            )
    return results


def run_tutorial(flags: argparse.Namespace, data: str, directory: pathlib.Path) -> dict[str, Any]:
    """One run of the tutorial loop, which measures itself."""
    sizes = {name: getattr(flags, name) for name in ("workers", "ps", "rows", "batch", "seconds")}
    command = [
        *(flags.peer_python, str(ROOT / "benchmarks" / "tutorial.py"), f"--data={data}"),
        *(f"--{name}={value}" for name, value in sizes.items()),
        *(f"--lib={flags.peer_lib}", *threads(flags)),
    ]
    with started(command, directory / "log") as process:
        results = [line for line in process.stdout if line.startswith("RESULT ")]
    if not results:
        raise Failed(f"the tutorial loop failed:\n{tail(directory / 'log')}")
    return json.loads(results[-1].removeprefix("RESULT "))


def run_tfps(flags: argparse.Namespace, data: str, directory: pathlib.Path) -> dict[str, Any]:
    """One run of tfps: its report's examples/s, and what a window within the epoch used."""
    job_dir = directory / "job"
    command = [
        *(sys.executable, "-m", "cloud.local", f"--workers={flags.workers}", f"--ps={flags.ps}"),
        *("--", *config(flags), f"--set=train.batch_size={flags.batch}", "--set=train.epochs=1"),
        *(f"--train_data={pathlib.Path(data).resolve()}", f"--job_dir={job_dir}"),
        *(*threads(flags), "--progress=lines"),
    ]
    readings: list[tuple[int, str, Reading]] = []
    lines: list[str] = []
    with started(command, directory / "log") as process:
        meter: Meter | None = None
        for line in process.stdout:
            lines.append(line)
            if match := _PROGRESS.search(line):
                meter = meter or Meter(tasks(process.pid))
                readings.append((int(match[1].replace(",", "")), match[2], meter.read()))
    report = job_dir / "report.json"
    if process.returncode or not report.exists():
        raise Failed(f"tfps failed:\n{''.join(lines[-20:])}{tail(directory / 'log')}")
    if not readings or readings[-1][2].time - readings[0][2].time < LEAST_WINDOW_SECONDS:
        raise Failed(
            f"tfps trained the epoch too fast for a window of {LEAST_WINDOW_SECONDS:g} s; give "
            "more --records (and an empty --data)"
        )
    (first, _, start), (last, loss, end) = readings[0], readings[-1]
    result = used(start, end, last - first)
    whole = json.loads(report.read_text())
    return {
        **result,
        "examples_per_second": whole["examples_per_second"],
        "window_examples_per_second": result["examples_per_second"],
        "loss": float(loss),
        "versions": whole["versions"],
    }


def tasks(launcher: int) -> dict[str, int]:
    """The process of each task of a local cluster, and the launcher's own."""
    found = {"launcher": launcher}
    for process in psutil.Process(launcher).children(recursive=True):
        task = json.loads(process.environ()["TF_CONFIG"])["task"]
        found[f"{task['type']}-{task['index']}"] = process.pid
    return found


@contextlib.contextmanager
def started(command: Sequence[str], log: pathlib.Path) -> Iterator[subprocess.Popen]:
    """A process whose lines are read; it ends on leaving, and stderr is in the log."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield process
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
            process.kill()
            process.wait()


def tail(path: pathlib.Path) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-20:])


def settings(flags: argparse.Namespace) -> dict[str, Any]:
    """What was measured where, for the results."""
    kept = ("records", "shards", "workers", "ps", "rows", "batch", "runs", "seconds")
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "platform": platform.platform()},
        "settings": {name: getattr(flags, name) for name in kept}
        | {"intra_op_threads": flags.intra_op_threads, "inter_op_threads": flags.inter_op_threads}
        | {"peer": flags.peer_lib},
    }


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Median, least and greatest of each figure, and of tfps's ratio to the tutorial."""
    summed: dict[str, dict[str, Any]] = {}
    for key in _FIGURES:
        values = {name: [run[key] for run in runs] for name, runs in results.items()}
        pairs = zip(values["tfps"], values["tutorial"], strict=True)
        ratios = [mine / theirs for mine, theirs in pairs]
        summed[key] = {
            name: {"median": statistics.median(found), "min": min(found), "max": max(found)}
            for name, found in {"ratio": ratios, **values}.items()
        }
    return summed


def table(flags: argparse.Namespace, summed: dict[str, dict[str, Any]]) -> str:
    """The summary for a person."""
    lines = [
        f"\n{flags.workers} workers, {flags.ps} ps, 26 tables of {flags.rows:,} rows, batch "
        f"{flags.batch}, threads {flags.intra_op_threads} intra-op and {flags.inter_op_threads} "
        f"inter-op; medians of {flags.runs} runs (min - max)",
        f"{'':28}{'tfps / tutorial':>22}{'tfps':>28}{f'tutorial, {flags.peer_lib}':>28}",
    ]
    for key, (title, digits) in _FIGURES.items():
        cells = [
            "{median:,.{d}f} ({min:,.{d}f} - {max:,.{d}f})".format(**summed[key][name], d=decimals)
            for name, decimals in (("ratio", 2), ("tfps", digits), ("tutorial", digits))
        ]
        lines.append(f"{title:28}{cells[0]:>22}{cells[1]:>28}{cells[2]:>28}")
    return "\n".join(lines)


def disturbance(results: dict[str, list[dict[str, Any]]]) -> str:
    """How much of the machine others used meanwhile, for a person."""
    worst = {
        name: max(run["others_cores"] + run["stolen_cores"] for run in runs)
        for name, runs in results.items()
    }
    cores = ", ".join(f"{name} {value:.2f}" for name, value in worst.items())
    return f"cores used by others, in the worst run: {cores} (of {os.cpu_count()})"


if __name__ == "__main__":
    sys.exit(main())
