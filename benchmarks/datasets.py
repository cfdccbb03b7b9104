"""Makes and keeps the datasets of the cases."""

import pathlib
import subprocess
import sys

from benchmarks.cases import ADAGRAD, Case

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIGS = {
    "embeddings_mlp": "benchmarks/embeddings_mlp.py",
    "dlrm": "benchmarks/dlrm.py",
    "wide_and_deep": "benchmarks/wide_and_deep.py",
    "dense_100": "benchmarks/dense_100.py",
}


def config_flags(case: Case) -> list[str]:
    """The flags that name a case's experiment."""
    rows = [f"--task.rows_per_table={case.rows}"] if case.rows else []
    optimizer = [f"--task.optimizer_name={case.optimizer}"] if case.optimizer != ADAGRAD else []
    return [f"--config={CONFIGS[case.model]}", *rows, *optimizer]


def path(parent: pathlib.Path, case: Case) -> pathlib.Path:
    """Where the dataset of a case is; models with the same records share one."""
    return parent / (f"criteo-{case.rows}" if case.rows else case.model)


def ensure(parent: pathlib.Path, case: Case) -> None:
    """Makes the dataset of a case unless it is there."""
    directory = path(parent, case)
    if directory.exists():
        return
    parent.mkdir(parents=True, exist_ok=True)
    print(f"making {directory}", flush=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.make_dataset"),
            *(f"--output={directory.absolute()}", *config_flags(case)),
        ],
        cwd=ROOT,
        check=True,
    )
