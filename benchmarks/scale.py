"""Prints what it costs to be large: `python -m benchmarks.scale --output=scale.json`.

Every cost is measured with simulated tasks, each in a process of its own: CPU time, bytes and
counts, which other processes on the machine hardly change. `--tree` measures another checkout by
the same programs. `--before` names what was measured of it, and with `--plots` the pictures are
drawn, which needs matplotlib. docs/scale.md has what was seen.
"""

import argparse
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys

from benchmarks import machine
from benchmarks.datasets import ROOT

MEASURES = {
    "barrier": "benchmarks.scale_chief",
    "leases": "benchmarks.scale_chief",
    "dataset": "benchmarks.scale_data",
    "graph": "benchmarks.scale_store",
    "balance": "benchmarks.scale_store",
    "export": "benchmarks.scale_store",
    "evaluation": "benchmarks.scale_chief",
    "rows": "benchmarks.scale_watch",
}
_TREE = "TFPS_TREE"  # for the process that measures


def main() -> int:
    """Measures, prints and draws; returns the exit code."""
    flags = parse()
    if flags.measure:
        tree = os.environ[_TREE]
        sys.path.insert(0, tree)
        measure = getattr(importlib.import_module(MEASURES[flags.measure]), flags.measure)
        # Those who watch tasks are started as processes of that tree.
        more = {"tree": pathlib.Path(tree)} if flags.measure == "rows" else {}
        print(json.dumps(measure(flags.tasks, **more)))
        return 0
    found = json.loads(flags.output.read_text())["figures"] if flags.output.exists() else {}
    for name in flags.only:
        found[name] = measured(name, flags)
        content = {"machine": machine.facts(sys.executable), "figures": found}
        flags.output.write_text(json.dumps(content, indent=1) + "\n")
    before = json.loads(flags.before.read_text())["figures"] if flags.before else {}
    print("\n".join(table(found, before)))
    if flags.plots:
        from benchmarks import scale_plots

        print(*scale_plots.draw(found, before, flags.plots), sep="\n")
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--tasks", type=numbers, default=[10, 100, 1000], help="simulated, with commas")
    add("--only", type=names, default=list(MEASURES), help=f"of {','.join(MEASURES)}")
    add("--tree", type=pathlib.Path, default=ROOT, help="the checkout to measure")
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "scale.json", help="added to")
    add("--before", type=pathlib.Path, help="an earlier --output, to be printed beside")
    add("--plots", type=pathlib.Path, help="directory to draw into")
    add("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def names(text: str) -> list[str]:
    """Names of measures; nothing for none."""
    wanted = [name for name in text.split(",") if name]
    if unknown := set(wanted) - set(MEASURES):
        raise argparse.ArgumentTypeError(f"no such measure: {', '.join(sorted(unknown))}")
    return wanted


def measured(name: str, flags: argparse.Namespace) -> list[dict]:
    """What one measure gives, in a process of its own: a list of `what`, `unit`, `by_tasks`."""
    tasks = ",".join(map(str, flags.tasks))
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", f"--measure={name}", f"--tasks={tasks}"],
        cwd=ROOT,
        env={**os.environ, **quiet, "CUDA_VISIBLE_DEVICES": "-1", _TREE: str(flags.tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(found: dict, before: dict) -> list[str]:
    """Markdown, a line for each figure; two where there is one of before."""
    tasks = sorted({int(c) for rows in found.values() for row in rows for c in row["by_tasks"]})
    header = ["what", "", *(f"{count:,} tasks" for count in tasks)]
    lines = [header, ["---", "---", *["--:"] * len(tasks)]]
    for name, rows in found.items():
        earlier = {row["what"]: row for row in before.get(name, [])}
        for row in rows:
            title = row["what"] + (f", {row['unit']}" if row["unit"] else "")
            if row["what"] in earlier:
                lines.append([title, "before", *cells(earlier[row["what"]], tasks)])
                title = ""
            lines.append([title, "now" if before else "", *cells(row, tasks)])
    return ["| " + " | ".join(line) + " |" for line in lines]


def cells(row: dict, tasks: list[int]) -> list[str]:
    values = (row["by_tasks"].get(str(count)) for count in tasks)
    return ["" if value is None else show(value, row["unit"]) for value in values]


def show(value: float, unit: str) -> str:
    """A figure with three digits; a share without unit as percents."""
    if math.isnan(value):
        return "refused"
    if not unit:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
