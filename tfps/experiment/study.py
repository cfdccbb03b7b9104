"""A search for better settings: `get_study()` of the file that --tune names returns one."""

import dataclasses
import math
import re
from typing import Self

from tfps import arguments
from tfps.errors import UserError

SCALES = ("linear", "log", "reverse_log")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A field with the values it may take: a range, or a list.

    Attributes:
        field: By its dotted name, such as task.learning_rate.
        values: All values, or of a range the least and the greatest.
        scale: Of a range: linear, log or reverse_log; empty for a list.
    """

    field: str
    values: tuple[float | int | str, ...]
    scale: str = ""

    @classmethod
    @arguments.checked
    def between(
        cls, field: str, least: float | int, greatest: float | int, scale: str = "linear"
    ) -> Self:
        """A range: of whole numbers if both its ends are, else of all numbers.

        Args:
            field: By its dotted name.
            least: The least value.
            greatest: The greatest value.
            scale: linear, log or reverse_log.

        Raises:
            UserError: If this is no range.
        """
        if scale not in SCALES:
            raise UserError(f"study: {field}: scale={scale!r}; use one of {', '.join(SCALES)}")
        if not (math.isfinite(least) and math.isfinite(greatest) and least < greatest):
            raise UserError(f"study: {field}: {least} to {greatest} is no range")
        if scale != "linear" and least <= 0:
            raise UserError(f"study: {field}: a {scale} scale begins above 0, not at {least}")
        return cls(field, (least, greatest), scale)

    @classmethod
    @arguments.checked
    def among(cls, field: str, *values: float | int | str) -> Self:
        """A list of numbers, or of texts.

        Args:
            field: By its dotted name.
            *values: All numbers or all texts, two or more.

        Raises:
            UserError: If this is no list.
        """
        kinds = {isinstance(value, str) for value in values}
        if len(set(values)) < 2 or len(set(values)) < len(values) or len(kinds) > 1:
            raise UserError(
                f"study: {field}: {values}; give two or more values, each once, all numbers or all "
                "texts"
            )
        return cls(field, values if True in kinds else tuple(sorted(values)))

    def __post_init__(self) -> None:
        arguments.check_fields(self, f"study: {arguments.shown(self.field)}: ")
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", self.field):
            raise UserError(
                f"study: {self.field!r} is no field; write its dotted name, such as task.dim"
            )

    @property
    def is_continuous(self) -> bool:
        """Whether it is a range of all numbers between its ends."""
        return bool(self.scale) and any(isinstance(value, float) for value in self.values)


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
        arguments.check_fields(self, "study: ")
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
