"""Makes and keeps the records that are trained on GPUs."""

import dataclasses
import pathlib
import shutil
import subprocess
import sys

from benchmarks.datasets import ROOT

_EVALUATED_SEED = 1  # of other records with the same signal
_COPIES = "--copies=160"  # an epoch that outlasts a window, and a kill


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many records there are of each model.

    Attributes:
        trained: That are trained over and over, for speed.
        learnt: That are trained to the end, for quality.
        evaluated: On which quality is measured.
    """

    trained: int
    learnt: int
    evaluated: int


COUNTS = Counts(1_000_000, 400_000, 100_000)
REHEARSED = Counts(40_000, 8_000, 4_000)


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the records of a model are.

    Attributes:
        trained: See `Counts`.
        learnt: See `Counts`.
        evaluated: See `Counts`.
    """

    trained: pathlib.Path
    learnt: pathlib.Path
    evaluated: pathlib.Path


def ensure(parent: pathlib.Path, model: str, counts: Counts) -> Data:
    """Makes what is not there of a model's records.

    Args:
        parent: Where all datasets are.
        model: criteo or census.
        counts: How many.
    """
    parent = parent.absolute()
    config = f"--config=configs/{model}.py"
    trained = parent / f"{model}-{counts.trained}"
    _make(trained, "benchmarks.make_dataset", config, f"--records={counts.trained}", _COPIES)
    learnt = parent / f"{model}-learnt-{counts.learnt}"
    _make(learnt, "trainer.generate", config, f"--records={counts.learnt}", "--shards=8")
    evaluated = parent / f"{model}-evaluated-{counts.evaluated}"
    seed = f"--seed={_EVALUATED_SEED}"
    _make(
        evaluated, "trainer.generate", config, f"--records={counts.evaluated}", "--shards=4", seed
    )
    return Data(trained, learnt, evaluated)


def _make(directory: pathlib.Path, module: str, *flags: str) -> None:
    if directory.exists():
        return
    print(f"making {directory}", flush=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    command = [sys.executable, "-m", module, f"--output={unfinished}", *flags]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    unfinished.rename(directory)
