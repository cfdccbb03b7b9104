"""Which GPUs of this machine each task of a local cluster may use."""

import subprocess
from collections.abc import Mapping

from tfps.cluster.spec import Cluster
from tfps.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_NONE = "-1"
_QUERY = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_ANSWER_SECONDS = 60.0

TaskEnvironments = Mapping[tuple[str, int], Mapping[str, str]]


def owned(tasks: Cluster, each: int, environ: Mapping[str, str]) -> TaskEnvironments:
    """What gives every task that trains GPUs of its own, and hides them from all others.

    Args:
        tasks: The cluster. Workers train; without ps the chief does too, and comes first.
        each: GPUs of every task that trains; 0 leaves all GPUs to all tasks.
        environ: The launcher's environment; GPUs that it may not use are given to nobody.

    Returns:
        By job and index, the variables of a task. An evaluator has the GPUs that are left.
    """
    if not each:
        return {}
    gpus = _available(environ)
    training = [("chief", 0)] if not tasks.ps else []
    training += [("worker", index) for index in range(len(tasks.workers))]
    needed = each * len(training)
    if len(gpus) < needed:
        raise UserError(
            f"--gpus_per_worker={each}: {len(training)} tasks train, which takes {needed} GPUs, "
            f"and this machine has {len(gpus)} to give; start fewer workers, or leave the flag out "
            "for all of them to share what there is"
        )
    lists = {task: gpus[each * k : each * (k + 1)] for k, task in enumerate(training)}
    lists |= {("evaluator", index): gpus[needed:] for index in range(len(tasks.evaluators))}
    lists |= {("ps", index): [] for index in range(len(tasks.ps))}
    lists.setdefault(("chief", 0), [])
    order = environ.get(_ORDER, "PCI_BUS_ID")  # as nvidia-smi counts
    return {task: {VISIBLE: ",".join(mine) or _NONE, _ORDER: order} for task, mine in lists.items()}


def _available(environ: Mapping[str, str]) -> list[str]:
    if VISIBLE in environ:
        # CUDA takes the list up to the first name that it does not know.
        named = [name.strip() for name in environ[VISIBLE].split(",")]
        return named[: named.index(_NONE)] if _NONE in named else [name for name in named if name]
    try:
        found = subprocess.run(
            _QUERY, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"--gpus_per_worker: which GPUs there are is unknown, {' '.join(_QUERY)} fails "
            f"({error}); name them in {VISIBLE}, or leave the flag out"
        ) from None
    return found.stdout.split()
