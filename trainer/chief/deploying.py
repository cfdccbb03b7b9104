"""Deploys what a job has exported, if it is good enough: `--deploy_to` and `--deploy_if`."""

import logging
import math
import operator
import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from cloud import deploy
from tfps.errors import EXIT_OK, UserError
from tfps.experiment.experiment import NO_EXPORT
from tfps.job_dir import report
from trainer.chief.exports import metrics_of
from trainer.chief.run_inputs import RunInputs

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<)\s*(\S+)\s*")
_log = logging.getLogger(__name__)


class Condition(NamedTuple):
    """What a metric must be for a model to be deployed.

    Attributes:
        metric: Its name.
        comparison: Of `>=`, `<=`, `>` and `<`.
        limit: What it is compared with.
    """

    metric: str
    comparison: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a condition.

        Args:
            text: As `auc>=0.8`.

        Raises:
            UserError: If it is none.
        """
        match = _CONDITION.fullmatch(text)
        try:
            limit = float(match[3]) if match else math.nan
        except ValueError:
            limit = math.nan
        if match is None or math.isnan(limit):
            raise UserError(f"--deploy_if={text}: write METRIC>=NUMBER, such as 'auc>=0.8'")
        return cls(match[1], match[2], limit)

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.limit:g}"

    def holds(self, value: float) -> bool:
        """Whether a value of the metric is good enough; one that is no number is not."""
        return _COMPARE[self.comparison](value, self.limit)


class DeployPlan(NamedTuple):
    """Where a job's model goes, and when.

    Attributes:
        arguments: What `cloud.deploy` is given beside the model.
        conditions: All of which must hold.
    """

    arguments: tuple[str, ...]
    conditions: tuple[Condition, ...]

    @classmethod
    def parse(cls, arguments: str, conditions: Sequence[str], job_dir: str) -> Self:
        """Reads the flags.

        Args:
            arguments: Flags of `cloud.deploy`, as in a shell.
            conditions: As `Condition.parse` takes them.
            job_dir: Directory of the job.

        Raises:
            UserError: If `cloud.deploy` would refuse the arguments, or a condition is none.
        """
        found = deploy.check(arguments, job_dir, here=True)
        return cls(found, tuple(map(Condition.parse, conditions)))

    def check(self, inputs: RunInputs) -> None:
        """Refuses a run that will have nothing to deploy, or nothing to measure it by.

        Args:
            inputs: The run's.

        Raises:
            UserError: If so.
        """
        if inputs.experiment.train.export == NO_EXPORT:
            raise UserError(f"--deploy_to with --train.export={NO_EXPORT}: leave one of them out")
        if not self.conditions:
            return
        if not inputs.eval_data:
            raise UserError(
                f"--deploy_if={self.conditions[0]} without --data.eval: nothing is measured; name "
                "evaluation data, or leave it out"
            )
        known = inputs.metric_names
        for condition in self.conditions:
            if condition.metric not in known:
                raise UserError(
                    f"--deploy_if={condition}: there is no metric {condition.metric!r}; use one "
                    f"of {', '.join(known)}"
                )

    def carry_out(self, job_dir: str) -> int:
        """Deploys the newest version of a job that is done, if it is good enough.

        Args:
            job_dir: The directory of the job.

        Returns:
            The exit code: 0 also for a model that is not good enough, which is told.

        Raises:
            StorageError: If the report or the model cannot be read.
        """
        done = report.load(job_dir)
        if done is None or done.export is None:
            raise UserError(f"the report of {job_dir} names no exported model to deploy")
        if done.export_refused:
            _log.warning(
                "not deployed: the model in %s is worse than the newest version",
                done.export_refused,
            )
            return EXIT_OK
        measured = metrics_of(done.export)
        for condition in self.conditions:
            value = measured.get(condition.metric, math.nan)
            if not condition.holds(value):
                _log.warning(
                    "not deployed: %s of %s is %.6g, and --deploy_if=%s",
                    condition.metric,
                    done.export,
                    value,
                    condition,
                )
                return EXIT_OK
        _log.info("deploying %s", done.export)
        code = deploy.main(["cloud.deploy", *self.arguments, f"--model={done.export}"])
        if code != EXIT_OK:
            again = shlex.join(["python", "-m", "cloud.deploy", *self.arguments])
            _log.error("not deployed; try again with %s --model=%s", again, done.export)
        return code
