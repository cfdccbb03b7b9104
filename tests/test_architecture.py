"""docs/architecture.md, the contract of `make lint` and the tree say the same."""

import ast
import re
import tomllib

import pytest

from tests.project import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
FLOORS = re.findall(r"^\| (\d+) \| (.+?) \| .+ \|$", PAGE, re.MULTILINE)
SENTENCES = dict(re.findall(r"^\|(?: \d+ \|)? `([\w/]+)/` \| (.+) \|$", PAGE, re.MULTILINE))


def packages(room):
    return {str(path.parent.relative_to(ROOT)) for path in (ROOT / room).rglob("__init__.py")}


def test_every_package_has_its_sentence():
    rooms = {*packages("tfps"), *packages("trainer"), *packages("cloud"), "configs"}
    assert set(SENTENCES) == rooms - {"tfps"}


@pytest.mark.parametrize("package", SENTENCES)
def test_a_package_says_of_itself_what_the_page_says(package):
    text = (ROOT / package / "__init__.py").read_text()
    assert ast.get_docstring(ast.parse(text)).splitlines()[0] == SENTENCES[package]


def test_the_floors_are_those_of_the_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    assert contract["exhaustive"]
    listed = {}
    for floor, names in FLOORS:
        for name in re.findall(r"`tfps/(\w+)(?:/|\.py)`", names):
            listed.setdefault(int(floor), set()).add(name)
    layers = [set(layer.split(" | ")) for layer in contract["layers"]]
    assert [listed[floor] for floor in sorted(listed)] == layers


def test_only_five_modules_lie_flat():
    flat = {path.stem for path in (ROOT / "tfps").glob("*.py")}
    assert flat == {"__init__", "arguments", "byte_size", "columns", "errors", "python_config"}


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", PAGE))
    assert len(named) > 20
    assert not [
        path for path in named if not any((ROOT / room / path).is_file() for room in ("", "tfps"))
    ]
