"""A short run whose storage misbehaves at one call after the other.

    python -m tests.faults.exploration [--points=N] [--kinds=EIO,ENOSPC] [--jobs=2]

The run resumes from a checkpoint, trains, saves, deletes an old checkpoint, evaluates and exports.
Its calls on the job_dir and the data are counted in one that nothing disturbs. Then each run meets
one kind of fault at one call, or from one call on. It must complete with every record trained, or
end with the exit code 2 or 3 and one message; then one that nothing disturbs must complete, from
the newest checkpoint that was there.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tests import counting_task
from tests.faults import shim
from tests.loaded.client import Loaded
from tfps.checkpoint import commit_marker, reader
from tfps.checkpoint.checkpoint import DamagedCheckpointError

RECORDS, EPOCHS = 60, 3
LASTING = ("EIO", "ENOSPC", "EROFS")  # also tried from one call to the run's end
PATIENCE_SECONDS = 1.0
MOST_SECONDS = 240.0  # that a run may take


@dataclasses.dataclass(frozen=True)
class Point:
    """Where a run meets a fault.

    Attributes:
        kind: Of `shim.FAULTS`.
        call: The first of the calls that this kind can meet.
        is_lasting: Whether all calls after it meet it, too.
    """

    kind: str
    call: int
    is_lasting: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {'from' if self.is_lasting else 'at'} call {self.call}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        point: What it met.
        code: Its exit code.
        wrong: What should not be; empty if all is well.
    """

    point: Point
    code: int
    wrong: str


class Exploration:
    """One template of a job, copied for each run. A context manager.

    Attributes:
        template: The job_dir before each run.
        counted: That after the run that nothing disturbed.
        record: Of the changes that this run made, for `power_cut`.
    """

    def __init__(self, directory: pathlib.Path, jobs: int = 1):
        """Trains the first epochs, which nothing disturbs.

        Args:
            directory: For everything.
            jobs: Runs at the same time.
        """
        self._directory = directory
        self._data, self.template = directory / "data", directory / "template"
        counting_task.write(
            self._data, counting_task.CountingTask(records=RECORDS), [RECORDS // 2] * 2
        )
        self._loaded = Loaded({"LD_PRELOAD": str(shim.compile_shim(directory))})
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        code, said = self._run(self.template, EPOCHS - 1)
        assert code == 0, said
        self._before = committed(self.template)
        assert len(self._before) == 2
        told, self.record = directory / "told", directory / "record"
        self.counted = self.copy("counted")
        code, said = self._run(self.counted, told=str(told), record=str(self.record))
        assert code == 0, said
        self._classes = [int(line.split()[1]) for line in told.read_text().splitlines()]

    def calls(self, kind: str) -> int:
        """How many calls of the run a kind of fault can meet."""
        return sum(bool(each & shim.FAULTS[kind].meets) for each in self._classes)

    def points(self, kinds: list[str], most: int = 0) -> list[Point]:
        """Every call, by kind; or so many of each kind, as far apart as can be."""
        found = []
        for kind in kinds:
            calls = self.calls(kind)
            step = max(1, -(-calls // most)) if most else 1
            for is_lasting in (False, True) if kind in LASTING else (False,):
                first = (1 + step) // 2
                found += [Point(kind, call, is_lasting) for call in range(first, calls + 1, step)]
        return found

    def try_out(self, point: Point) -> Outcome:
        """Runs into a fault, then without."""
        job_dir = self.copy(str(point).replace(" ", "-"))
        last = shim.FOREVER if point.is_lasting else point.call
        code, said = self._run(job_dir, fault=point.kind, first=point.call, last=last)
        wrong = self._judged(code, said, job_dir)
        if not wrong and code:
            again, said = self._run(job_dir)
            wrong = self._judged(again, said, job_dir)
            if again and not wrong:
                wrong = f"without faults it ends with {again}: {said[-1000:]}"
        if wrong:
            return Outcome(point, code, f"{point}: {wrong} ({job_dir})")
        shutil.rmtree(job_dir)
        return Outcome(point, code, "")

    def _judged(self, code: int, said: str, job_dir: pathlib.Path) -> str:
        """What is wrong with a run's end and what it leaves, if anything is."""
        messages = re.findall(r"^error: .*", said, re.MULTILINE)
        if code not in (0, 2, 3) or "Traceback" in said or len(messages) != (code != 0):
            return f"exit code {code}, {len(messages)} messages: {said[-3000:]}"
        left = committed(job_dir)
        if not left or max(left) < max(self._before):
            return f"{max(self._before)} is lost, {left} are left: {said[-1000:]}"
        if aside := list(job_dir.glob("checkpoints/*.damaged*")):
            return f"set aside: {aside}"
        if code:
            return ""
        report = json.loads((job_dir / "report.json").read_text())
        examples = report["examples"]
        if report["status"] != "finished" or report["passed_over"] or examples["skipped"]:
            return f"{report['status']}, {report['passed_over']}, {examples}"
        trained = examples["trained"] or RECORDS * report["epochs"]
        return "" if trained in (RECORDS * EPOCHS, 0) else f"trained {trained}"

    def copy(self, name: str) -> pathlib.Path:
        """A job_dir like the template."""
        return shutil.copytree(self.template, self._directory / name, dirs_exist_ok=True)

    def _run(
        self,
        job_dir: pathlib.Path,
        epochs: int = EPOCHS,
        fault: str = "",
        first: int = 0,
        last: int = 0,
        told: str = "",
        record: str = "",
    ) -> tuple[int, str]:
        """Trains; returns the exit code and what it said."""
        out = job_dir.with_name(f"{job_dir.name}.out")
        flags = {
            "mode.name": "local",
            "config": "tests/counting_task.py",
            "data.train": self._data,
            "data.eval": self._data,
            "job_dir": job_dir,
            "progress": "lines",
        }
        settings = {
            "task.records": RECORDS,
            "train.batch_size": 10,
            "data.shuffle_buffer": 10,
            "train.epochs": epochs,
            "train.checkpoint_seconds": 0.001,
            "train.keep_checkpoints": 2,
        }
        order = {
            "roots": [str(job_dir), str(self._data)],
            "fault": fault,
            "first": first,
            "last": last,
            "told": told,
            "record": record,
            "patience": PATIENCE_SECONDS,
        }
        arguments = [json.dumps(order)]
        arguments += [f"--{name}={value}" for name, value in flags.items()]
        arguments += [f"--{name}={value}" for name, value in settings.items()]
        with out.open("wb") as said:
            fork = self._loaded.start("tests.faults.misbehaving", arguments, said.fileno())
            with contextlib.suppress(subprocess.TimeoutExpired):
                fork.wait(MOST_SECONDS)
            fork.kill()
        return fork.wait(), out.read_text(errors="replace")

    def __enter__(self) -> "Exploration":
        return self

    def __exit__(self, *exception: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        self._loaded.end()


def committed(job_dir: pathlib.Path) -> list[str]:
    """Names of the committed checkpoints that are whole, oldest first."""
    found = []
    for marker in job_dir.glob("checkpoints/*/commit.json"):
        try:
            reader.check(commit_marker.read(str(marker.parent)))
        except DamagedCheckpointError:
            continue
        found.append(marker.parent.name)
    return sorted(found)


def main() -> int:
    """Tries all points that the flags name; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=0, help="Of each kind; 0 for every call.")
    parser.add_argument("--kinds", default=",".join(shim.FAULTS), help="Names, with commas.")
    parser.add_argument("--jobs", type=int, default=2, help="Runs at the same time.")
    values = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    kinds = values.kinds.split(",")
    with Exploration(directory, values.jobs) as exploration:
        points = exploration.points(kinds, values.points)
        met = {kind: exploration.calls(kind) for kind in kinds}
        print("calls that a fault can meet:", met, flush=True)
        tried: dict[str, collections.Counter[int]] = {}
        wrong = 0
        for outcome in exploration.pool.map(exploration.try_out, points):
            kind = outcome.point.kind + (" lasting" if outcome.point.is_lasting else "")
            tried.setdefault(kind, collections.Counter())[outcome.code] += 1
            if outcome.wrong:
                wrong += 1
                print(f"WRONG {outcome.wrong}", flush=True)
    for kind, codes in tried.items():
        ended = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items()) if code)
        print(f"{kind}: {codes.total()} tried, {codes[0]} completed, ended: {ended or 'none'}")
    print(f"{wrong} wrong; what they left is in {directory}" if wrong else "none wrong")
    if not wrong:
        shutil.rmtree(directory)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
