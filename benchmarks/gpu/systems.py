"""How each setup is started on a case."""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence

from benchmarks.gpu.cases import FIT, TORCH, Case, Setup
from benchmarks.systems import System

_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


@dataclasses.dataclass(frozen=True)
class Places:
    """Where things are.

    Attributes:
        data: Records to train without end.
        job_dir: Where tfps may write.
    """

    data: pathlib.Path
    job_dir: pathlib.Path

    @property
    def nccl_log(self) -> pathlib.Path:
        """Where NCCL says what it does, a file for each process id."""
        return self.job_dir.with_name("nccl-%p")


def environ(setup: Setup, gpus: Sequence[str]) -> Mapping[str, str]:
    """The variables that say which GPUs a setup has.

    Args:
        setup: The setup.
        gpus: Indices of the machine's GPUs that may be used, as nvidia-smi counts them.
    """
    if not setup.gpus:
        return _NO_GPU
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus[: setup.gpus]),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def trained_for_ever(
    case: Case, setup: Setup, flags: argparse.Namespace, places: Places, gpus: Sequence[str]
) -> System:
    """What trains until it is ended, and says how far it is.

    Args:
        case: What is trained.
        setup: How.
        flags: Of the program: `batch` and `torch_python`.
        places: Where things are.
        gpus: See `environ`.
    """
    own = environ(setup, gpus)
    if setup.has_nccl:
        own = {**own, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(places.nccl_log)}
    if setup.mode == FIT:
        command = [
            *(sys.executable, "-m", "benchmarks.keras_fit", *_config(case)),
            *(f"--data.train={places.data}", f"--batch={flags.batch}"),
            *(["--train.jit_compile=true"] if case.jit_compile else []),
        ]
        return System(command, "chief-0", own)
    if setup.mode == TORCH:
        command = [
            *(flags.torch_python, "-m", "benchmarks.peers.start", "torch_one"),
            *(f"--data={places.data}", f"--batch={flags.batch}", "--workers=1"),
            *(f"--precision={case.precision}", f"--device={'cpu' if flags.rehearse else 'cuda'}"),
            *(["--compile"] if case.jit_compile else []),
        ]
        return System(command, "launcher", own)
    job = [
        *_config(case),
        *(f"--train.batch_size={flags.batch}", "--train.epochs=1"),
        *(f"--data.train={places.data}", f"--job_dir={places.job_dir}"),
        *("--progress=lines", "--progress_seconds=1"),
    ]
    return System(
        tfps_command(case, setup, job), "launcher" if setup.is_cluster else "chief-0", own
    )


def trained_to_the_end(
    case: Case, setup: Setup, train: pathlib.Path, evaluated: pathlib.Path, job_dir: pathlib.Path
) -> list[str]:
    """The command of a job of tfps with an evaluation at its end, with the config's batches."""
    job = [
        *_config(case),
        *(f"--data.train={train}", f"--data.eval={evaluated}", f"--job_dir={job_dir}"),
        *("--progress=lines", "--train.export=none"),
    ]
    return tfps_command(case, setup, job)


def tfps_command(case: Case, setup: Setup, job: Sequence[str]) -> list[str]:
    """A job of tfps as a setup has it."""
    flags = [
        *job,
        f"--mode.name={setup.mode}",
        *(["--train.jit_compile=true"] if case.jit_compile else []),
    ]
    if setup.has_nccl:
        flags.append("--collectives=nccl")
    if not setup.is_cluster:
        return [sys.executable, "-m", "trainer.task", *flags]
    without_ps = setup.mode == "allreduce"
    launcher = [
        f"--workers={setup.workers - 1 if without_ps else setup.workers}",
        f"--ps={0 if without_ps else 1}",
        *(["--gpus_per_worker=1"] if setup.gpus == setup.workers > 1 else []),
    ]
    return [sys.executable, "-m", "cloud.local", *launcher, "--", *flags]


def _config(case: Case) -> list[str]:
    return [
        f"--config=benchmarks/gpu/{case.model}.py",
        f"--task.precision={case.precision}",
    ]
