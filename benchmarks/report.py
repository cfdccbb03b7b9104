"""Renders results: `python -m benchmarks.report results.jsonl --output=docs`.

Writes `benchmarks.md` and a PNG per sweep into the directory. Needs matplotlib, no TensorFlow.
"""

import argparse
import pathlib
import sys

from benchmarks import plots, table
from benchmarks.cases import Case
from benchmarks.measurement import Failed
from benchmarks.results import Results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=pathlib.Path, help="file that benchmarks.suite wrote")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="an existing directory")
    parser.add_argument("--reference", default="tfps-1ps", help="system to divide by the others")
    flags = parser.parse_args()
    try:
        results = Results(flags.results, Case)
        if not results.runs:
            raise Failed(f"{flags.results} has no runs")
        if not flags.output.is_dir():
            raise Failed(f"--output={flags.output} is no directory")
        files = plots.draw(results, flags.output)
        pictures = "\n".join(f"![{file.stem}]({file.name})" for file in files)
        text = f"# Benchmarks\n\n{table.report(results, flags.reference)}\n{pictures}\n"
        page = flags.output / "benchmarks.md"
        page.write_text(text)
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    print(*(page, *files), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
