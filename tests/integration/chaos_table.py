"""Prints what came of runs of `make chaos`: `python -m tests.integration.chaos_table DIR [FILE]`.

With a file the outcomes in DIR are first added to those in it, a line of JSON each by seed, and it
is all of the file's that are printed.
"""

import json
import pathlib
import sys
from typing import Any

from trainer.console.text_table import text_table

_COLUMNS = (
    *("", "runs", "completed", "faults", "recoveries"),
    *("trained twice", "at most", "CPU-s a run", "s a run"),
)


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """Lines of the table: for each mode, each kind of fault, each kind of run, and all."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for names_of in (_modes, _faults, _kinds):
        found = sorted({name for outcome in outcomes for name in names_of(outcome)})
        by_name |= {name: [x for x in outcomes if name in names_of(x)] for name in found}
    rows = [_row(name, some) for name, some in by_name.items()]
    return text_table(_COLUMNS, [*rows, _row("all", outcomes)], range(1, len(_COLUMNS)))


def _modes(outcome: dict[str, Any]) -> list[str]:
    return [outcome["mode"]]


def _faults(outcome: dict[str, Any]) -> list[str]:
    return [f"{kind} {job}" for kind, job, *_ in outcome["faults"]]


def _kinds(outcome: dict[str, Any]) -> list[str]:
    named = {
        "keys": outcome["has_keys"],
        "an evaluator": outcome["evaluator"],
        "a worker next to the chief": outcome["chief_works"],
        "storage that misbehaves": outcome["storage"],
        "resumed": outcome.get("resumed"),
        "resumed with other ps": outcome.get("resumed") and outcome["other_ps"] != outcome["ps"],
    }
    return [name for name, is_so in named.items() if is_so]


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


def main(directory: pathlib.Path, file: pathlib.Path | None = None) -> None:
    """Prints the table of a directory or of a file it is added to, and the failures."""
    outcomes = [json.loads(path.read_text()) for path in directory.glob("seed-*.json")]
    if file:
        kept = file.read_text().splitlines() if file.exists() else []
        by_seed = {each["seed"]: each for each in [*map(json.loads, kept), *outcomes]}
        outcomes = [by_seed[seed] for seed in sorted(by_seed)]
        file.write_text("".join(f"{json.dumps(each)}\n" for each in outcomes))
    print("\n".join(table(outcomes)))
    failed = sorted((x for x in outcomes if x["failure"]), key=lambda x: x["seed"])
    for each in failed:
        cluster = f"{each['mode']}, {each['workers']} workers, {each['ps']} ps"
        print(f"seed {each['seed']} ({cluster}; {each['chaos']}): {each['failure']}")
    if failed:
        print(f"their logs: {directory}/seed-*.log")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
