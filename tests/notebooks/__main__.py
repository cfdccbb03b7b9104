"""Executes the notebooks again and keeps what they show: `make notebooks CENSUS=DIR`.

DIR has `adult.data` and `adult.test`. The jobs that the notebooks look at are made in a directory
that is deleted afterwards.
"""

import pathlib
import subprocess
import sys
import tempfile

import nbformat

from tests.notebooks import running

_CONFIG = "--config=configs/census.py"


def main() -> None:
    """Makes the census job, executes both notebooks and writes them where they were."""
    if len(sys.argv) != 2:
        sys.exit("say where adult.data and adult.test are: make notebooks CENSUS=DIR")
    census = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="tfps-notebooks-") as name:
        directory = pathlib.Path(name).resolve()
        (directory / "configs").symlink_to(running.ROOT / "configs")
        _make_census_job(directory, census)
        for notebook in running.NAMES:
            _execute(notebook, directory)


def _make_census_job(directory: pathlib.Path, census: pathlib.Path) -> None:
    """The commands of the notebook, in the same place as there."""
    for source, output in (("adult.data", "data/train"), ("adult.test", "data/eval")):
        flags = [f"--input={census / source}", f"--output={output}", "--max_bad_rows=1"]
        shards = 8 if output == "data/train" else 4
        _run(directory, "trainer.prepare", _CONFIG, *flags, f"--shards={shards}")
    flags = ["--data.train=data/train", "--data.eval=data/eval", "--job_dir=runs/census"]
    _run(directory, "trainer.task", "--mode.name=local", _CONFIG, *flags)


def _run(directory: pathlib.Path, module: str, *flags: str) -> None:
    subprocess.run([sys.executable, "-m", module, *flags], cwd=directory, check=True)


def _execute(name: str, directory: pathlib.Path) -> None:
    notebook = running.read(name)
    running.client_of(notebook, directory).execute()
    running.normalize(notebook, directory)
    nbformat.validate(notebook)
    running.path_of(name).write_text(f"{nbformat.writes(notebook, indent=1).rstrip()}\n")
    print(f"{running.path_of(name)}: {running.path_of(name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
