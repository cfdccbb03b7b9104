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


@pytest.mark.parametrize(
    ("former", "ways"),
    [
        (["--set=train.batch_size=64"], "write --train.batch_size=64 for --set=train"),
        (["--set", "task.dim=8"], "write --task.dim=8 for --set"),
        (["--train_data=a", "--eval_data", "b"], "--data.train=a for --train_data=a, --data.eval"),
        (["--mode=sync", "--x"], "write --mode.name=sync for --mode=sync"),
        (["--jit_compile"], "write --train.jit_compile=true for --jit_compile"),
        (["--nojit_compile"], "write --train.jit_compile=false for --nojit_compile"),
        (["--sync_every=auto"], "write --mode.sync_every=0 for --sync_every=auto"),
        (["--epochs=3"], "write --train.epochs=3 for --epochs=3"),
    ],
)
def test_former_flags_are_refused_with_what_to_write(former, ways):
    with pytest.raises(UserError, match="former flags have other names now") as e:
        field_flags.refuse_former(former)
    assert ways in str(e.value)


def test_other_flags_are_none_of_those():
    field_flags.refuse_former(["--mode.name=sync", "--modes=a", "mode", "--job_dir=x", "--", "-v"])


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
