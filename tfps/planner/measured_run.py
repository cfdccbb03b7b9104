"""What a run has measured of itself: what a step takes, and of which machines."""

import bisect
import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Self

from tfps.errors import UserError
from tfps.job_dir.size import Size
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import (
    CheckpointSaved,
    RunBegan,
    RunEvent,
    Sampled,
    TasksMeasured,
)
from tfps.planner.throughput import (
    Forecast,
    Machine,
    Machines,
    StepCosts,
    forecast,
    with_own_seconds,
)

LEAST_SECONDS = 60.0  # of training, with reports of all tasks
# How far a forecast may be off, as a part of it: docs/plan.md has what was seen.
_OFF, _OFF_BY_WORKERS, _OFF_BY_PS, _OFF_BY_MACHINE = 0.15, 0.05, 0.07, 0.3
_TRAINING = ("chief", "worker", "ps")


class TooShortError(Exception):
    """No run of the job has trained for long enough to tell what a step takes."""


@dataclasses.dataclass(frozen=True)
class MeasuredRun:
    """A run on a cluster, as its history tells."""

    config: str
    mode: str
    size: Size
    machines: Machines
    costs: StepCosts
    examples_per_second: float
    staleness: float
    table_bytes: int  # slots included
    memory_bytes: Mapping[str, int]  # of the largest task, by role
    epochs: int
    in_background: bool  # whether a ps holds its rows twice while it saves

    @classmethod
    def of(cls, events: Sequence[RunEvent], network: float = math.inf) -> Self:
        """What the newest run of a history that is long enough has measured.

        Args:
            network: Bytes a second, each way, of the machines that it ran on.
        """
        end = len(events)
        for place in range(end - 1, -1, -1):
            began = events[place]
            if isinstance(began, RunBegan):
                run, end = events[place + 1 : end], place
                if usages := _Usages.of(run, began.ps):
                    return cls._of_run(began, run, usages, network)
        raise TooShortError

    @classmethod
    def _of_run(
        cls,
        began: RunBegan,
        run: Sequence[RunEvent],
        usages: "_Usages",
        network: float,
    ) -> Self:
        if not began.ps:
            raise UserError(
                f"a run in mode {began.mode} has no ps, and a plan is of workers and ps; measure "
                "one with ps, such as --workers=1 --ps=1 of python -m cloud.local"
            )
        size = Size(began.workers, began.ps)
        rate, settings = usages.examples_per_second, began.settings
        costs = usages.costs(int(settings["train.batch_size"]))
        machines = usages.machines(network)
        seconds = size.workers * costs.examples / rate
        saved = [each for each in run if isinstance(each, CheckpointSaved)]
        return cls(
            config=began.config,
            mode=began.mode,
            size=size,
            machines=machines,
            costs=with_own_seconds(costs, size, machines, seconds),
            examples_per_second=rate,
            staleness=saved[-1].staleness.mean if saved else 0.0,
            table_bytes=sum(table.bytes for table in began.tables),
            memory_bytes=usages.memory(),
            epochs=int(settings["train.epochs"]),
            in_background=settings["train.checkpoint_in_background"] == "True",
        )

    def forecast(self, size: Size, machines: Machines | None = None) -> Forecast:
        """How fast another size is, on machines as they were or on others, one for each task."""
        costs = self.costs.with_other_ps(self.size.ps, size.ps)
        if (machines or self.machines).are_one:
            costs = costs.with_other_tasks(sum(size) - sum(self.size))
        if machines is not None and machines != self.machines:
            costs = costs.moved(size.ps, self.machines, machines)
        found = forecast(costs, size, machines or self.machines)
        part = self._measured_part
        return found._replace(
            examples_per_second=part * found.examples_per_second,
            step_seconds=found.step_seconds / part,
            busy={name: min(1.0, part * busy) for name, busy in found.busy.items()},
        )

    @functools.cached_property
    def _measured_part(self) -> float:
        """What was measured of what the model says of the same run: what else its machines do."""
        same = forecast(self.costs, self.size, self.machines)
        return self.examples_per_second / same.examples_per_second

    def may_be_off(self, size: Size, machines: Machines | None = None) -> float:
        """By which part a speed may be above a forecast, or a forecast above it."""
        workers = abs(math.log2(size.workers / self.size.workers))
        ps = abs(math.log2(size.ps / self.size.ps))
        is_other = machines is not None and machines != self.machines
        return _OFF + _OFF_BY_WORKERS * workers + _OFF_BY_PS * ps + _OFF_BY_MACHINE * is_other

    def staleness_of(self, size: Size) -> float:
        """The mean number of other updates between a pull and its push; 0 in rounds."""
        if self.mode == "sync" or size.workers == 1:
            return 0.0
        if self.size.workers == 1:
            return float(size.workers - 1)
        return self.staleness * (size.workers - 1) / (self.size.workers - 1)


class _Usages:
    """What the tasks of a run reported while it trained."""

    def __init__(self, samples: Sequence[Sampled], by_task: Mapping[TaskName, list[TaskUsage]]):
        self._at = [each.at for each in samples]
        self._examples = [each.examples for each in samples]
        self._rates = [
            (after.examples - before.examples) / (after.training_seconds - before.training_seconds)
            for before, after in itertools.pairwise(samples)
            if after.training_seconds > before.training_seconds
        ]
        self._by_task = by_task

    @classmethod
    def of(cls, run: Sequence[RunEvent], ps: int) -> "_Usages | None":
        """None where they are too few, or a role has none."""
        samples = [each for each in run if isinstance(each, Sampled)]
        if len(samples) < 3 or samples[-1].at - samples[0].at < LEAST_SECONDS:
            return None
        by_task: dict[TaskName, list[TaskUsage]] = {}
        for event in run:
            for name, usage in event.tasks.items() if isinstance(event, TasksMeasured) else ():
                task = TaskName.parse(name)
                if task.job in _TRAINING and samples[0].at <= usage.at <= samples[-1].at:
                    by_task.setdefault(task, []).append(usage)
        enough = all(len(reports) > 1 and reports[-1].cpus for reports in by_task.values())
        has_all = {task.job for task in by_task} >= ({"chief", "worker", "ps"} if ps else {"chief"})
        found = cls(samples, by_task)
        return found if enough and has_all and found.examples_per_second > 0 else None

    @property
    def examples_per_second(self) -> float:
        """While it trained: saves, evaluations and the ends of epochs left out."""
        return statistics.median(self._rates) if self._rates else 0.0

    def costs(self, examples: int) -> StepCosts:
        """What a step of so many examples took, of the median report of each task."""

        def of(job: str, count: str) -> float:
            tasks = [each for task, each in self._by_task.items() if task.job == job]
            return examples * sum(self._per_example(reports, count) for reports in tasks)

        return StepCosts(
            examples=examples,
            worker_cpu=of("worker", "cpu_seconds"),
            ps_cpu=of("ps", "cpu_seconds"),
            chief_cpu=of("chief", "cpu_seconds"),
            pulled_bytes=of("ps", "sent_bytes"),
            pushed_bytes=of("ps", "received_bytes"),
        )

    def machines(self, network: float) -> Machines:
        """What each role had; tasks of one machine that are not all have equal parts of it."""
        last = {task: reports[-1] for task, reports in self._by_task.items()}
        hosts = [usage.host for usage in last.values()]
        if len(set(hosts)) == 1:
            return Machines.shared(Machine(max(usage.cpus for usage in last.values()), network))

        def of(job: str) -> Machine:
            found = [
                usage.cpus / hosts.count(usage.host)
                for task, usage in last.items()
                if task.job == job
            ]
            return Machine(statistics.median(found), network)

        return Machines(of("chief"), of("worker"), of("ps"))

    def memory(self) -> dict[str, int]:
        """What the largest task of each role had."""
        found: dict[str, int] = {}
        for task, reports in self._by_task.items():
            most = max(usage.memory_bytes for usage in reports)
            found[task.job] = max(found.get(task.job, 0), most)
        return found

    def _per_example(self, reports: Sequence[TaskUsage], count: str) -> float:
        """The median of what an example took between two reports; evaluations are few of them."""
        found = []
        for before, after in itertools.pairwise(reports):
            examples = self._examples_at(after.at) - self._examples_at(before.at)
            taken = getattr(after, count) - getattr(before, count)
            if examples > 0 and taken >= 0:  # a task that begins again counts from 0
                found.append(taken / examples)
        return statistics.median(found) if found else 0.0

    def _examples_at(self, at: float) -> float:
        """How many were trained by then."""
        place = min(max(1, bisect.bisect_left(self._at, at)), len(self._at) - 1)
        first, second = self._at[place - 1], self._at[place]
        part = (at - first) / (second - first) if second > first else 0.0
        return self._examples[place - 1] + part * (
            self._examples[place] - self._examples[place - 1]
        )
