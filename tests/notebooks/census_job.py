"""A small census job on drawn rows."""

import pathlib

from tests.integration.census_rows import census_rows
from tests.loaded import client


def run(module: str, *flags: str) -> None:
    """Runs a program to its end, which must be a good one."""
    done = client.run(module, *flags)
    assert done.returncode == 0, done.stdout + done.stderr


def make(directory: pathlib.Path, config: str = "configs/census.py") -> None:
    """Makes data/train, data/eval and runs/census in a directory."""
    named = f"--config={config}"
    data, job = directory / "data", directory / "runs/census"
    for name, count in (("train", 1500), ("eval", 600)):
        rows = directory / f"{name}.csv"
        rows.write_bytes(census_rows(count, len(name)))
        run("trainer.prepare", named, f"--input={rows}", f"--output={data / name}", "--shards=2")
    flags = [f"--data.train={data / 'train'}", f"--data.eval={data / 'eval'}", f"--job_dir={job}"]
    run("trainer.task", named, "--mode.name=local", *flags, "--train.epochs=2")
