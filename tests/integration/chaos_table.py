"""Prints what came of the runs of `make chaos`: `python -m tests.integration.chaos_table DIR`."""

import json
import pathlib
import sys
from typing import Any

from trainer.console.text_table import text_table

_COLUMNS = (
    *("mode", "runs", "completed", "faults", "recoveries"),
    *("trained twice", "at most", "CPU-s a run", "s a run"),
)


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """Lines of the table, one for each mode and one for all."""
    modes = sorted({outcome["mode"] for outcome in outcomes})
    rows = [_row(mode, [x for x in outcomes if x["mode"] == mode]) for mode in modes]
    return text_table(_COLUMNS, [*rows, _row("all", outcomes)], range(1, len(_COLUMNS)))


def _row(name: str, outcomes: list[dict[str, Any]]) -> tuple[str, ...]:
    completed = [x for x in outcomes if x["failure"] is None]

    def total(field: str) -> str:
        return f"{sum(x[field] for x in completed):,}"

    def mean(field: str) -> str:
        return f"{sum(x.get(field, 0.0) for x in outcomes) / max(1, len(outcomes)):.1f}"

    return (
        *(name, str(len(outcomes)), str(len(completed))),
        str(sum(len(x["faults"]) for x in outcomes)),
        *(total("recoveries"), total("more"), total("repeated")),
        *(mean("cpu_seconds"), mean("seconds")),
    )


def main(directory: pathlib.Path) -> None:
    """Prints the table of a directory, and its failures."""
    outcomes = [json.loads(path.read_text()) for path in directory.glob("seed-*.json")]
    print("\n".join(table(outcomes)))
    failed = sorted((x for x in outcomes if x["failure"]), key=lambda x: x["seed"])
    for each in failed:
        cluster = f"{each['mode']}, {each['workers']} workers, {each['ps']} ps"
        print(f"seed {each['seed']} ({cluster}; {each['chaos']}): {each['failure']}")
    if failed:
        print(f"their logs: {directory}/seed-*.log")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
