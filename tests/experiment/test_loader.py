from pathlib import Path

import pytest

from tfps.errors import UserError
from tfps.experiment import overrides

GOOD = """
import dataclasses
from configs.smoke import Smoke
from tfps.experiment.experiment import Experiment

@dataclasses.dataclass(frozen=True)
class Own(Smoke):
    extra: "int" = 3

def get_config():
    return Experiment("own", Own())
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.py"
    path.write_text(text)
    return str(path)


def test_a_file(tmp_path: Path) -> None:
    experiment = overrides.load(write(tmp_path, GOOD))
    assert (experiment.name, experiment.task.extra) == ("own", 3)


@pytest.mark.parametrize("name", ["configs/smoke.py", "configs.smoke"])
def test_an_installed_config(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert overrides.load(name).name == "smoke"


@pytest.mark.parametrize("name", ["configs/absent.py", "absent", "", "no.such.module", "/", "os.."])
def test_no_such_config_lists_the_installed_ones(name: str) -> None:
    with pytest.raises(UserError, match=r"no such file or module; installed configs: configs/cens"):
        overrides.load(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0\n", "line 1: ZeroDivisionError: division by zero"),
        ("\nint('x')\n", "line 2: ValueError: invalid literal"),
        ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_mod"),
    ],
)
def test_a_package_that_cannot_be_imported_says_why(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"package_{len(text)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / name / "mine.py").write_text(GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=rf"{name}/__init__\.py {message}"):
        overrides.load(f"{name}.mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no function get_config"),
        ("get_config = 1\n", "has no function get_config"),
        (
            "def get_config():\n    return 3\n",
            "returned int, not a tfps.Experiment",
        ),
        ("x = 1\n1 / 0\n", "own.py line 2: ZeroDivisionError: division by zero"),
        ("x = (\n", "own.py line 1: SyntaxError: '(' was never closed"),
        ("import no_such_module\n", "own.py line 1: ModuleNotFoundError: No module named"),
        (
            "from tfps.task import Task\n",
            "No module named 'tfps.task'; write `import tfps`, which has",
        ),
        (
            "from tfps.experiment import Train\n",
            "; write `import tfps`, which has tfps.",
        ),
        ("def get_config():\n    return int('x')\n", "own.py line 2: ValueError: invalid literal"),
        (
            "import tfps\n\ndef get_config():\n    tfps.Train(epochs=0)\n",
            "own.py line 4: train.epochs=0 must be at least 1",
        ),
    ],
)
def test_what_is_wrong_in_a_config_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        overrides.load(path)
    assert str(caught.value).startswith(f"--config={path}: ")
    assert message in str(caught.value)
