"""A search for better settings: `get_study()` of the file that --tune names returns one."""

import dataclasses
import re

from cloud.vertex.parameter import Parameter
from tfps.errors import UserError

GOALS = ("maximize", "minimize")
ALGORITHMS = ("bayesian", "grid", "random")


@dataclasses.dataclass(frozen=True)
class Study:
    """What to vary, and by what to judge.

    Attributes:
        metric: Name of the metric of the evaluations, such as auc.
        goal: maximize or minimize.
        parameters: What to vary.
        trials: Number of trials, each a whole job.
        parallel_trials: Trials at the same time.
        failed_trials: So many failed trials end the study; 0 for Vertex AI's choice.
        algorithm: bayesian, grid or random.
    """

    metric: str
    goal: str
    parameters: tuple[Parameter, ...]
    trials: int
    parallel_trials: int = 1
    failed_trials: int = 0
    algorithm: str = ALGORITHMS[0]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z]\w*", self.metric):
            raise UserError(f"study: metric={self.metric!r}; write a metric's name, such as auc")
        for name, known in (("goal", GOALS), ("algorithm", ALGORITHMS)):
            if getattr(self, name) not in known:
                raise UserError(
                    f"study: {name}={getattr(self, name)!r}; use one of {', '.join(known)}"
                )
        if not 1 <= self.parallel_trials <= self.trials:
            raise UserError(
                f"study: trials={self.trials}, parallel_trials={self.parallel_trials}; write 1 or "
                "more, and no more at the same time than in all"
            )
        if self.failed_trials < 0:
            raise UserError(f"study: failed_trials={self.failed_trials} must be 0 or more")
        self._check_parameters()

    def _check_parameters(self) -> None:
        fields = [parameter.field for parameter in self.parameters]
        if not fields or len(set(fields)) < len(fields):
            raise UserError(f"study: parameters of {fields}; give one or more, each field once")
        for parameter in self.parameters:
            if self.algorithm == "grid" and parameter.is_continuous:
                raise UserError(
                    f"study: the grid has no end, since {parameter.field} is continuous; use "
                    "Parameter.among, or another algorithm"
                )
