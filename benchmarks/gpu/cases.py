"""What is trained on GPUs, as data: cases, the ways to train each, and which go together."""

import dataclasses
from collections.abc import Iterator, Sequence

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and how it computes, the same for every system.

    Attributes:
        model: criteo or census, of benchmarks/gpu/.
        precision: One of `PRECISIONS`.
        jit_compile: Whether XLA compiles the step; for PyTorch `torch.compile` does.
    """

    model: str = "criteo"
    precision: str = "float32"
    jit_compile: bool = False

    @property
    def name(self) -> str:
        """For people, and for `--only`."""
        return f"{self.model} {self.precision}{' XLA' if self.jit_compile else ''}"

    @property
    def on_cpu(self) -> "Case":
        """What its quality is held against."""
        return Case(self.model)


@dataclasses.dataclass(frozen=True)
class Setup:
    """A way to train.

    Attributes:
        mode: Of tfps: local, async, sync or allreduce; for a peer its name.
        workers: Processes that train.
        gpus: GPUs that they have together: each has its own where there are as many as workers,
            one worker splits its batches over several, several workers share one. 0: on the CPU,
            trained to the end for its quality alone.
        kills: Whether a worker is killed after the window, to see its GPU's memory freed.
        has_nccl: Whether replicas add up by NCCL.
    """

    mode: str
    workers: int = 1
    gpus: int = 1
    kills: bool = False
    has_nccl: bool = False

    @property
    def name(self) -> str:
        """For people, and the system's in the results."""
        if self.mode in PEERS:
            return self.mode
        where = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else "the CPU"
        workers = f" {self.workers} worker{'s' if self.workers > 1 else ''}"
        more = " and one killed" if self.kills else " by NCCL" if self.has_nccl else ""
        return f"{self.mode}{'' if self.mode == 'local' else workers} on {where}{more}"

    @property
    def is_cluster(self) -> bool:
        """Whether it has more than one process."""
        return self.mode in ("async", "sync", "allreduce")

    @property
    def on_cpu(self) -> "Setup":
        """What its quality is held against."""
        return Setup(self.mode, self.workers, 0)

    @property
    def computing(self) -> tuple[str, ...]:
        """The tasks that may use a GPU."""
        if self.mode in ("local", FIT):
            return ("chief-0",)
        if self.mode == "allreduce":  # the chief is one of the replicas
            return ("chief-0", *(f"worker-{index}" for index in range(self.workers - 1)))
        return tuple(f"worker-{index}" for index in range(self.workers))


FIT, TORCH = "keras-fit", "torch"
PEERS = (FIT, TORCH)
SETUPS = (
    Setup(FIT),
    Setup(TORCH),
    Setup("local"),
    Setup("async"),
    Setup("async", 2, 1),
    Setup("async", 2, 2),
    Setup("async", 1, 2),
    Setup("sync"),
    Setup("sync", 2, 1),
    Setup("sync", 2, 2),
    Setup("allreduce", 2, 1),
    Setup("allreduce", 2, 2),
    Setup("allreduce", 2, 2, has_nccl=True),
)
KILLED = (Setup("async", 2, 1, kills=True), Setup("async", 2, 2, kills=True))
CASES = tuple(
    Case(model, *variant)
    for model in ("criteo", "census")
    for variant in (*((precision, False) for precision in PRECISIONS), (PRECISIONS[0], True))
)


def refusal(case: Case, setup: Setup) -> str:
    """Why a setup cannot train a case; empty if it can."""
    if setup.mode == TORCH and case.model != "criteo":
        return "the peer in PyTorch has Criteo's model alone"
    return ""


def planned(gpus: int, only: Sequence[str], has_nccl: bool = True) -> Iterator[tuple[Case, Setup]]:
    """What is trained on a machine, each case's setups side by side, those on the CPU last.

    Args:
        gpus: How many it has.
        only: Keeps what has one of these in `CASE: SETUP`; empty keeps all. What they are held
            against on the CPU is kept with them.
        has_nccl: Whether what needs NCCL may be planned, which no CPU has.
    """
    setups = [x for x in SETUPS if x.gpus <= gpus and (has_nccl or not x.has_nccl)]
    kills = [setup for setup in KILLED if setup.gpus <= gpus][-1:]
    on_cpu: dict[tuple[Case, Setup], None] = {}
    for case in CASES:
        for setup in [*setups, *(kills if case == CASES[0] else [])]:
            name = f"{case.name}: {setup.name}"
            if refusal(case, setup) or (only and not any(text in name for text in only)):
                continue
            yield case, setup
            if setup.mode not in PEERS and not setup.kills:
                on_cpu[case.on_cpu, setup.on_cpu] = None
    yield from on_cpu
