"""What is searched for, as a user's file says it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

DIRECTIONS = ("maximize", "minimize")


@dataclasses.dataclass(frozen=True)
class Study:
    """A search; `get_study()` of the file that `--study` names returns one.

    Args:
        suggest: Takes a trial of Optuna's (`optuna.trial.Trial`), asks it for values with
            `trial.suggest_float(…)` and the like, and returns fields of the experiment by their
            dotted names, such as `{"task.dim": 32}`.
        metric: Name of a metric of the job's evaluations, such as `auc` or `loss`; or one such as
            `progressive_auc`, of records as they were predicted before they were trained, for
            jobs of one epoch: after it the model knows all records.
        direction: `maximize` or `minimize`.
        sampler: One of `optuna.samplers`; None for its TPE.
        pruner: One of `optuna.pruners`; None for its median pruner.
    """

    suggest: Callable[[Any], Mapping[str, Any]]
    metric: str
    direction: str = "maximize"
    sampler: Any = None
    pruner: Any = None
