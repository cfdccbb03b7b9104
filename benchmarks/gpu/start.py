"""Installs what `benchmarks.gpu` needs on a machine with an NVIDIA GPU, then runs it: `make gpu`.

It needs nothing but Python, and runs with the interpreter that is to train.
"""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.failure import Failed
from benchmarks.gpu import nvidia_smi

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "runs/gpu"
PYTHONS = ((3, 11), (3, 14))  # from, and before
TENSORFLOW = "tensorflow[and-cuda]>=2.21,<2.22"
TORCH = ("torch>=2.9", "numpy")
_SEES_GPUS = """
import sys
try:
    import psutil, tensorflow
except ImportError:
    sys.exit(1)
sys.exit(not tensorflow.config.list_physical_devices("GPU"))
"""


def main(arguments: Sequence[str]) -> int:
    """Installs, then becomes the program; returns an exit code only where it cannot.

    Args:
        arguments: Of `benchmarks.gpu`.
    """
    try:
        refuse()
        python = with_cuda()
        command = [python, "-m", "benchmarks.gpu"]
        if not any(each.partition("=")[0] == "--torch_python" for each in arguments):
            command.append(f"--torch_python={with_torch()}")
        sys.stdout.flush()
        os.chdir(ROOT)
        os.execv(python, [*command, *arguments])
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2


def refuse() -> None:
    """Ends before anything is installed where nothing could be trained.

    Raises:
        Failed: If there is no GPU, or Python is of another version.
    """
    least, end = PYTHONS
    if not least <= sys.version_info[:2] < end:
        raise Failed(
            f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}, and tfps "
            f"needs {least[0]}.{least[1]} to {end[0]}.{end[1] - 1}: make gpu PYTHON=python3.12"
        )
    gpus = nvidia_smi.read_gpus()
    if not gpus:
        raise Failed("nvidia-smi lists no GPU: run this on a machine that has one")
    print(f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}: {', '.join(gpu.name for gpu in gpus)}")


def with_cuda() -> str:
    """The interpreter to train with: one whose TensorFlow sees a GPU, installed where none does."""
    own = str(KEPT / "tensorflow/bin/python")
    for python in (str(ROOT / ".venv/bin/python"), own):
        if shutil.which(python) and _run([python, "-c", _SEES_GPUS], quietly=True):
            print(f"TensorFlow of {python} sees a GPU")
            return python
    print(
        f"no TensorFlow here sees a GPU: {TENSORFLOW} and tfps go to {KEPT}/tensorflow, several GB"
    )
    _install(KEPT / "tensorflow", "-e", f"{ROOT}[benchmarks]", TENSORFLOW)
    if not _run([own, "-c", _SEES_GPUS], quietly=True):
        raise Failed(
            f"TensorFlow of {own} sees no GPU though CUDA is installed there: is NVIDIA's driver "
            "new enough for it? `python -c 'import tensorflow as t; "
            "print(t.config.list_physical_devices())'` says what it misses"
        )
    return own


def with_torch() -> str:
    """The peer's interpreter, installed where it is not there: its CUDA is another one."""
    python = str(KEPT / "torch/bin/python")
    if not (shutil.which(python) and _run([python, "-c", "import torch, numpy"], quietly=True)):
        print(f"PyTorch, for the peer, goes to {KEPT}/torch, several GB")
        _install(KEPT / "torch", *TORCH)
    return python


def _install(directory: pathlib.Path, *packages: str) -> None:
    """Makes an environment for packages.

    Raises:
        Failed: If they cannot be installed.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    pip = [f"{directory}/bin/python", "-m", "pip", "install", "--disable-pip-version-check"]
    made = _run([sys.executable, "-m", "venv", str(directory)])
    if not made or not _run([*pip, "--quiet", *packages]):
        raise Failed(f"{', '.join(packages)} cannot be installed in {directory}: see above")


def _run(command: Sequence[str], quietly: bool = False) -> bool:
    sink = subprocess.DEVNULL if quietly else None
    return subprocess.run(command, stdout=sink, stderr=sink, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
