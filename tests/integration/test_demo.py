"""The commands of `make demo`, with few records."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from cluster_process import NOISE

from tests.make_commands import would_run
from tests.project import ROOT

RECORDS = {"500000": "3000", "100000": "600"}
LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def commands(directory):
    """What make would run, after it has installed."""
    here = (f"DEMO={directory}", f"BIN={pathlib.Path(sys.executable).parent}")
    lines = would_run("demo", *here).replace("\\\n", " ").splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("rm -rf"))
    text = re.sub(
        r"--records=(\d+)", lambda m: f"--records={RECORDS[m[1]]}", "\n".join(lines[begin:])
    )
    return [shlex.split(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_shows_its_results_and_nothing_of_tensorflow(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name != LEVEL}
    printed = ""
    for command in commands(tmp_path / "demo"):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        printed += done.stdout
    assert not re.findall(NOISE, printed, re.MULTILINE)
    for task in ("chief-0", "worker-0", "worker-1", "ps-0", "ps-1"):
        log = (tmp_path / "demo/job/logs" / f"{task}.log").read_text()
        assert re.search(NOISE, log, re.MULTILINE), task
    for part in (
        *("criteo: 3,000 records in 8 shards", "evaluation after epoch 2", "exported the model"),
        *("600 records predicted", "label,prediction", "job        criteo, finished", "0 skipped"),
    ):
        assert part in printed
