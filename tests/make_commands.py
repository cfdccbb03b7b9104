"""What a verb of the Makefile would run."""

import os
import subprocess

from tests.project import ROOT


def would_run(verb, *variables):
    """The lines that `make` prints for a verb, told nothing by a `make` that runs the tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", verb, *variables],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
