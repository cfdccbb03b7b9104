"""Keeps what models ended at, and prints it as the table of docs/keras.md.

python -m tests.keras_models.kept DIR
"""

import json
import os
import pathlib
import sys
from collections.abc import Mapping

from tests.keras_models.case import Case
from tests.keras_models.cases import ALL

KEPT = "TFPS_KERAS_KEPT"  # the directory; without it nothing is kept
LOCAL, CLUSTER = "local", "cluster"
_HEAD = ("model", "for", "before", "`fit`, by row", "tfps, one process", "`fit`", "tfps, 2 + 2")


def keep(case: Case, where: str, losses: Mapping[str, float]) -> None:
    """Writes the losses of one model to the directory that the environment names."""
    if directory := os.environ.get(KEPT):
        path = pathlib.Path(directory, f"{case.name}.{where}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(losses))


def table(directory: pathlib.Path) -> list[str]:
    """Lines of the table in Markdown."""
    rows = [_HEAD, ("---", "---", *["---:"] * 5)]
    for case in ALL:
        local, cluster = (_read(directory, case, where) for where in (LOCAL, CLUSTER))
        figures = local["before"], local["keras"], local["tfps"], cluster["keras"], cluster["tfps"]
        rows.append((case.name.replace("_", " "), case.kind, *(f"{x:.4f}" for x in figures)))
    return [f"| {' | '.join(row)} |" for row in rows]


def _read(directory: pathlib.Path, case: Case, where: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((directory / f"{case.name}.{where}.json").read_text())
    return found


if __name__ == "__main__":
    print("\n".join(table(pathlib.Path(sys.argv[1]))))
