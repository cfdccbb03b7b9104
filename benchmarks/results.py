"""Every run in one file: a JSON line of settings, then one per run, appended as they end."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from benchmarks.cases import STEP, WIRE
from benchmarks.failure import Failed

Case = TypeVar("Case")  # a frozen dataclass
CPU = "cpu_seconds_per_million_examples"


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median, least and greatest of a figure over the runs."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """The spread of one value or more."""
        return cls(statistics.median(values), min(values), max(values))


class Results(Generic[Case]):
    """What a file holds.

    Attributes:
        settings: What was measured where; equal for all runs of a file.
        runs: Figures by case, system and number of the run, from 1.
    """

    def __init__(self, path: pathlib.Path, kind: type[Case]):
        """Reads a file, which may not exist yet; what an interruption cut off is left out.

        Args:
            path: The file.
            kind: What its cases are.

        Raises:
            Failed: If the file holds something else.
        """
        self._path = path
        self._kind = kind
        self.settings: dict[str, Any] | None = None
        self.runs: dict[tuple[Case, str], dict[int, dict[str, Any]]] = {}
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                path.write_text("".join(lines[:-1]))
                break
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise Failed(f"{path} line {number} is no result of a run ({error!r})") from None

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Notes the settings.

        Raises:
            Failed: If the file has runs with others.
        """
        if self.settings is None:
            self._append({"settings": dict(settings)})
        different = [name for name in settings if settings[name] != self.settings.get(name)]
        if different:
            raise Failed(
                f"{self._path} has runs with other settings ({', '.join(different)}); name "
                "another --output"
            )

    def has(self, case: Case, system: str, run: int) -> bool:
        """Whether a run is there."""
        return run in self.runs.get((case, system), {})

    def add(self, case: Case, system: str, run: int, figures: Mapping[str, Any]) -> None:
        """Keeps a run."""
        self._append(
            {"run": run, "system": system, "case": dataclasses.asdict(case), "figures": figures}
        )

    def systems(self, case: Case) -> list[str]:
        """Those with a run of a case, in the order in which they were measured."""
        return [system for measured, system in self.runs if measured == case]

    def cases(self) -> list[Case]:
        """Those with a run, in the order in which they were measured."""
        return list(dict.fromkeys(case for case, _ in self.runs))

    def spread(self, case: Case, system: str, figure: str) -> Spread:
        """A figure of a system over its runs."""
        return Spread.of([run[figure] for run in self.runs[case, system].values()])

    def ratio(self, figure: str, one: tuple[Case, str], other: tuple[Case, str]) -> Spread | None:
        """A figure of one system divided by another's, over the runs that both have.

        Runs of one number stand side by side in time.
        """
        mine, theirs = self.runs.get(one, {}), self.runs.get(other, {})
        ratios = [mine[run][figure] / theirs[run][figure] for run in mine if run in theirs]
        return Spread.of(ratios) if ratios else None

    def floor(self, case: Case) -> dict[int, float]:
        """The least CPU time that a cluster could take, by run: one process's step and the wire.

        In CPU-seconds per million examples; of the runs that have both.
        """
        step, wire = self.runs.get((case, STEP), {}), self.runs.get((case, WIRE), {})
        return {run: step[run][CPU] + wire[run][CPU] for run in step if run in wire}

    def _append(self, line: dict[str, Any]) -> None:
        line = json.loads(json.dumps(line))
        self._take(line)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _take(self, line: dict[str, Any]) -> None:
        if "settings" in line:
            self.settings = line["settings"]
            return
        runs = self.runs.setdefault((self._kind(**line["case"]), line["system"]), {})
        runs[line["run"]] = line["figures"]
