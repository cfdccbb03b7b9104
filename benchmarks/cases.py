"""What is measured: systems, cases and the sweeps that are made of them."""

import dataclasses
from collections.abc import Iterator, Sequence

from benchmarks.models import KAGGLE_IDS

# What follows the number of ps in a name, part by part, is trained with these flags.
FLAGS_OF_PARTS = {
    "ahead": ("--train.pipeline_depth=1",),
    "bf16": ("--train.wire_dtype=bfloat16",),
    "sync": ("--mode.name=sync",),
    "sgd8": ("--mode.name=local_sgd", "--mode.sync_every=8"),
    "together": ("--mode.name=async", "--mode.batches_per_exchange=4"),
    "lazy": ("--train.row_updates=lazy",),
    "keys": ("--task.is_keyed=true",),
    "rowwise": ("--config=benchmarks/narrow_rows.py", "--task.row_wise=true"),
    "half": ("--config=benchmarks/narrow_rows.py", "--task.row_dtype=bfloat16"),
    "few": ("--task.max_rows=5000", "--task.evict_first=least_recent"),
}
_USUAL_TFPS = (
    "tfps-1ps",
    "tfps-2ps",
    "tfps-1ps-ahead",
    "tfps-1ps-together",
    "tfps-1ps-bf16",
    "tfps-1ps-ahead-bf16",
    "tfps-1ps-sync",
    "tfps-1ps-sgd8",
    "tfps-allreduce",
    "tfps-local",
)
# With rows moved lazily; without history, curves, page and reports of what tasks take.
LAZY, UNWATCHED = "tfps-1ps-lazy", "tfps-1ps-unwatched"
# With tables that have no vocabulary; with rows that must make room for others all the time.
KEYS, FEW_ROWS = "tfps-1ps-keys", "tfps-1ps-keys-few"
# With an accumulator per row; with rows of bfloat16; with both.
NARROW = ("tfps-1ps-rowwise", "tfps-1ps-half", "tfps-1ps-rowwise-half")
TFPS = (*_USUAL_TFPS, LAZY, UNWATCHED, KEYS, FEW_ROWS, *NARROW)
# Keras's own `fit`, which needs no other interpreter than tfps.
FIT = "fit-local"
_PEERS = (
    "tutorial-keras",
    "tutorial-tf_keras",
    "fit-tf_keras",
    "mwms-tf_keras",
    "torch-rpc",
    "torch-rpc-files",
    "torch-ddp",
    "torch-ddp-files",
    "torchrec",
    "torchrec-files",
    "torchrec-dmp",
    FIT,
)
# One process's step, and its bytes over bare sockets: together they are the least of a cluster.
STEP, WIRE = "tfps-local", "wire"
SYSTEMS = (*TFPS, *_PEERS, WIRE)
# Systems that train some of the models only.
_ONLY = {
    **dict.fromkeys((*(x for x in _PEERS if "torch" in x), WIRE), ("embeddings_mlp", "dlrm")),
    **dict.fromkeys((KEYS, FEW_ROWS), ("embeddings_mlp", "dlrm")),
    **dict.fromkeys(NARROW, ("embeddings_mlp",)),
}
# PyTorch's for sparse gradients is lazy. fbgemm's tables have none on CPUs.
_WITH_ADAM = {*TFPS, *(x for x in _PEERS if "keras" in x), FIT, "torch-rpc", "torch-rpc-files"}
ADAGRAD = "adagrad"


@dataclasses.dataclass(frozen=True)
class Case:
    """One training job, the same for every system.

    Attributes:
        model: One of `benchmarks/models.py`.
        rows: Rows of each of its tables; 0 for a model without tables. Of the dlrm the most.
        batch: Records per step of one worker.
        optimizer: One of `models.OPTIMIZERS`, for tables and dense parameters.
    """

    model: str = "embeddings_mlp"
    rows: int = 20_000
    batch: int = 512
    optimizer: str = ADAGRAD

    @property
    def name(self) -> str:
        """For people, and for `--only`."""
        optimizer = f" {self.optimizer}" if self.optimizer != ADAGRAD else ""
        return f"{self.model} rows={self.rows} batch={self.batch}{optimizer}"


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Cases that differ in one field.

    Attributes:
        field: Which one.
        title: For a heading.
        cases: With the systems that are measured on each. Left out is what takes too long or too
            much memory: a dense gradient of every table for each step, or a copy of every table in
            each worker.
    """

    field: str
    title: str
    cases: dict[Case, Sequence[str]]

    @property
    def is_named(self) -> bool:
        """Whether the field's values are names, not numbers."""
        return all(isinstance(getattr(case, self.field), str) for case in self.cases)


_OF_A_MODEL = ("tfps-1ps", STEP, "tutorial-tf_keras")
_OF_A_SWEEP = (*_OF_A_MODEL, "torch-rpc", "torch-rpc-files", WIRE)

# Not the loops that send whole tables for every step.
_OF_THE_DLRM = (
    *("tfps-1ps", STEP, "tutorial-tf_keras", "torch-rpc", "torch-rpc-files"),
    *("torchrec", "torchrec-files", "torchrec-dmp", "torch-ddp", FIT),
)

SWEEPS = {
    "base": Sweep("model", "All systems", {Case(): (*_USUAL_TFPS, *_PEERS, WIRE)}),
    "rows": Sweep(
        "rows",
        "Rows per table",
        {
            Case(): (*_OF_A_SWEEP, "tutorial-keras"),
            Case(rows=200_000): (*_OF_A_SWEEP, "tutorial-keras"),
            Case(rows=2_000_000): _OF_A_SWEEP,
        },
    ),
    "dlrm": Sweep(
        "batch",
        "The DLRM on as many ids as the Kaggle data has",
        {Case("dlrm", max(KAGGLE_IDS), batch): _OF_THE_DLRM for batch in (512, 2048)},
    ),
    "batch": Sweep(
        "batch",
        "Records per step of a worker",
        {Case(batch=batch): _OF_A_SWEEP for batch in (64, 256, 512, 1024, 4096)},
    ),
    "models": Sweep(
        "model",
        "Models",
        {
            Case(): _OF_A_MODEL,
            Case("wide_and_deep"): _OF_A_MODEL,
            Case("dense_100", rows=0): _OF_A_MODEL,
        },
    ),
    "row_updates": Sweep(
        "optimizer",
        "Rows as Keras moves them, or lazily",
        {Case(optimizer="adam"): ("tfps-1ps", LAZY)},
    ),
    "dlrm_tables": Sweep(
        "optimizer",
        "The DLRM with Adagrad, and with Adam",
        {
            Case("dlrm", max(KAGGLE_IDS)): ("tfps-1ps", KEYS),
            Case("dlrm", max(KAGGLE_IDS), optimizer="adam"): ("tfps-1ps", LAZY, "torch-rpc"),
        },
    ),
    "keys": Sweep(
        "rows",
        "Tables with a vocabulary, and without",
        {
            Case(rows=20_000): ("tfps-1ps", KEYS, FEW_ROWS),
            Case(rows=2_000_000): ("tfps-1ps", KEYS),
        },
    ),
    "narrow": Sweep(
        "rows",
        "Rows with one accumulator, and of bfloat16",
        {Case(rows=rows): ("tfps-1ps", *NARROW) for rows in (20_000, 2_000_000)},
    ),
    "watching": Sweep("model", "What watching costs", {Case(): ("tfps-1ps", UNWATCHED)}),
}


def planned(
    sweeps: Sequence[str], only: Sequence[str], systems: Sequence[str]
) -> Iterator[tuple[Case, Sequence[str]]]:
    """The cases of some sweeps, each once, with the systems to measure on them.

    Args:
        sweeps: Names in `SWEEPS`.
        only: Keeps cases whose name contains one of these; empty keeps all.
        systems: Replaces the systems of every case; empty does not.
    """
    cases: dict[Case, list[str]] = {}
    for sweep in sweeps:
        for case, usual in SWEEPS[sweep].cases.items():
            chosen = {*cases.get(case, ()), *(systems or usual)}
            cases[case] = sorted(chosen, key=SYSTEMS.index)
    for case, chosen in cases.items():
        if not only or any(text in case.name for text in only):
            able = [x for x in chosen if case.optimizer == ADAGRAD or x in _WITH_ADAM]
            yield case, [x for x in able if case.model in _ONLY.get(x, (case.model,))]
