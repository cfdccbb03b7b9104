"""How far a run is at a moment, as its chief reports it to whoever shows it."""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any

import msgspec

UP = "up"
MOST_TASKS = 100  # that are reported, so that a line of a log holds them
_MOST_SECONDS = 1e9  # that are worth showing
_MARK = "tfps_status"
_FORMAT = 1
_BEGIN = f'{{"{_MARK}": '


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskStatus:
    """How a task of the run is; None is not known."""

    name: str
    state: str = UP
    # part of the records trained since the chief connected; None for a task that trains none
    share: float | None = None
    idle: float | None = None  # part of its time since then in which it waited for records
    memory_bytes: int | None = None  # in RAM
    cores: float | None = None  # that it has kept busy lately


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStatus:
    """How far a run is; None is not known."""

    config: str
    mode: str
    epoch: int  # being trained, from 1; where datasets are followed, the dataset
    epochs: int | None  # None where datasets are followed
    records: int
    records_of_epoch: int
    examples_per_second: float
    loss: float | None = None  # mean over the records trained last of the loss of their batch
    seconds_left: float | None = None  # until all epochs are trained at that speed
    tasks: tuple[TaskStatus, ...] = ()
    more_tasks: int = 0

    @property
    def figures(self) -> str:
        """Records, speed, loss and the time that is left, in a line."""
        said = [
            f"{self.records:,} of {self.records_of_epoch:,} records",
            f"{self.examples_per_second:,.0f} examples/s",
        ]
        if self.loss is not None:
            said.append(f"loss {self.loss:.4f}")
        if self.seconds_left is not None and self.seconds_left < _MOST_SECONDS:
            said.append(f"{datetime.timedelta(seconds=round(self.seconds_left))} left")
        return ", ".join(said)

    @property
    def place(self) -> str:
        """Which epoch or dataset is trained."""
        if self.epochs is None:
            return f"dataset {self.epoch}"
        return f"epoch {self.epoch}/{self.epochs}"

    @property
    def line(self) -> str:
        """All but the tasks, in a line."""
        return f"{self.place}: {self.figures}"

    def cut(self, most: int) -> "RunStatus":
        """The same with so many tasks at most: those that are not up, then those that wait most."""
        if len(self.tasks) <= most:
            return self
        by_interest = sorted(self.tasks, key=lambda task: (task.state == UP, -(task.idle or 0.0)))
        kept = set(by_interest[:most])
        return dataclasses.replace(
            self,
            tasks=tuple(task for task in self.tasks if task in kept),
            more_tasks=self.more_tasks + len(self.tasks) - len(kept),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data, by which `parse` knows that they are a status."""
        return {_MARK: _FORMAT, **dataclasses.asdict(self.cut(MOST_TASKS))}

    def to_text(self) -> str:
        """A line that `parse` reads."""
        return json.dumps(self.to_json())


def parse(text: str) -> RunStatus | None:
    """The status that a line holds, as `RunStatus.to_text` made it; None for any other line."""
    if not text.startswith(_BEGIN):
        return None
    try:
        return from_json(json.loads(text))
    except ValueError:
        return None


def from_json(data: Mapping[str, Any]) -> RunStatus | None:
    """The status that an object holds, as `RunStatus.to_json` made it; None for any other one."""
    if data.get(_MARK) != _FORMAT:
        return None
    try:
        return msgspec.convert(data, RunStatus, strict=False)  # some writers make 7.0 of 7
    except msgspec.ValidationError:
        return None
