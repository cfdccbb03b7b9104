"""Rows as their sources sort them: what is told of them, and what a shuffle gains."""

import dataclasses
import pathlib

import pytest
from cluster_process import Program, read_report
from sorted_rows import KINDS, write_rows

CONFIG = "--config=tests/integration/sorted_rows.py"
# What the warning names.
NAMED = {"ratings": "'user' by ", "photos": "label 'label' by ", "clicks": "'hour' by "}

# By what a shuffle lowers the loss on other rows, at least: clicks do not change with time.
GAINED = {"ratings": 0.2, "photos": 0.1, "clicks": -0.02}


@dataclasses.dataclass(frozen=True)
class Job:
    """Rows of a kind in a directory, and the programs that are run on them."""

    kind: str
    directory: pathlib.Path

    def run(self, module: str, *flags: str) -> str:
        """What a program prints; it ends well."""
        with Program(*flags, module=module) as program:
            assert program.finish() == 0, program.text
        return program.text

    def prepare(self, rows: str, output: str, *flags: str) -> str:
        paths = [f"--input={self.directory / rows}", f"--output={self.directory / output}"]
        kind = f"--task.kind={self.kind}"
        return self.run("trainer.prepare", CONFIG, kind, *paths, "--shards=2", *flags)

    def train(self, data: str) -> dict[str, float]:
        """Metrics on rows that were not trained."""
        paths = {"data.train": data, "data.eval": "eval", "job_dir": f"job-{data}"}
        flags = [f"--{flag}={self.directory / name}" for flag, name in paths.items()]
        self.run("trainer.task", CONFIG, f"--task.kind={self.kind}", "--mode.name=local", *flags)
        report = read_report(self.directory / paths["job_dir"])
        assert report["examples"]["skipped"] == 0
        return report["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sorted_rows_are_told_of_and_a_shuffle_helps(kind: str, tmp_path: pathlib.Path) -> None:
    job = Job(kind, tmp_path)
    for name, seed in (("rows.csv", 1), ("others.csv", 2)):
        write_rows(tmp_path / name, kind, seed)
    job.prepare("others.csv", "eval")
    inspected = job.run("trainer.inspect", f"--data={tmp_path / 'eval'}")
    for text in (job.prepare("rows.csv", "sorted"), inspected):
        [warning] = [line for line in text.splitlines() if line.startswith("warning: ")]
        assert f"neighbours are equal in {NAMED[kind]}" in warning
        assert "--shuffle=whole" in warning
    assert "warning" not in job.prepare("rows.csv", "shuffled", "--shuffle=whole")
    copied = tmp_path / "copied"
    kind_flag, data = f"--task.kind={kind}", f"--data={tmp_path / 'sorted'}"
    text = job.run(
        "trainer.index", CONFIG, kind_flag, data, "--shuffle=whole", f"--output={copied}"
    )
    assert "warning" not in text
    assert "warning" not in job.run("trainer.inspect", f"--data={copied}")
    as_sorted, as_shuffled = job.train("sorted"), job.train("shuffled")
    assert as_sorted["loss"] - as_shuffled["loss"] > GAINED[kind]
