import subprocess
import sys

import pytest

from tests.project import ROOT
from tfps.errors import UserError
from tfps.experiment import field_flags


def test_a_flag_with_a_dot_sets_a_field():
    given = ["--config=a.b.py", "--task.dim=8", "-train.epochs", "2.0", "--x", "a.b", "--y=--c.d=1"]
    fields, rest = field_flags.split(given)
    assert fields == ["task.dim=8", "train.epochs=2.0"]
    assert rest == ["--config=a.b.py", "--x", "a.b", "--y=--c.d=1"]
    assert field_flags.split(["--task.name="]) == (["task.name="], [])


def test_a_flag_without_a_value():
    with pytest.raises(UserError, match=r"--task\.dim has no value; write --task\.dim=VALUE"):
        field_flags.split(["--task.dim"])


def trainer(*flags):
    command = [sys.executable, "-m", "trainer.task", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    return done.stderr


def test_the_trainer_takes_fields_on_its_command_line_and_in_a_flagfile(tmp_path):
    expected = "error: --task.dim has no value; write --task.dim=VALUE\n"
    assert trainer("--task.dim") == expected
    (tmp_path / "flags").write_text("--job_dir=x\n--task.dim\n")
    assert trainer(f"--flagfile={tmp_path / 'flags'}") == expected


@pytest.mark.parametrize(
    ("flag", "way"),
    [
        ("--epochs=3", "--epochs=3 is no flag, but a field of the config is: write --train.epochs"),
        ("-mode", "write --mode.name=…"),
        ("--max_staleness=2", "write --mode.max_staleness=…"),
        ("--no_such_flag", "error: Unknown command line flag 'no_such_flag'"),
    ],
)
def test_a_field_without_its_path_is_refused_with_its_path(flag, way):
    assert way in trainer("--config=x", flag, "sync")
