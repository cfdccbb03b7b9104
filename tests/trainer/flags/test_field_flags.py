import subprocess
import sys

import pytest

from tests.project import ROOT
from tfps.errors import UserError
from trainer.flags import field_flags


def test_a_flag_with_a_dot_sets_a_field():
    given = ["--config=a.b.py", "--task.dim=8", "-train.epochs", "2.0", "--x", "a.b", "--y=--c.d=1"]
    assert field_flags.expand(given) == [
        "--config=a.b.py",
        "--set=task.dim=8",
        "--set=train.epochs=2.0",
        *("--x", "a.b", "--y=--c.d=1"),
    ]
    assert field_flags.expand(["--task.name="]) == ["--set=task.name="]


def test_a_flag_without_a_value():
    with pytest.raises(UserError, match=r"--task\.dim has no value; write --task\.dim=VALUE"):
        field_flags.expand(["--task.dim"])


def test_the_trainer_takes_fields_of_a_config_as_flags():
    command = [sys.executable, "-m", "trainer.task", "--task.dim"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: --task.dim has no value; write --task.dim=VALUE\n"
