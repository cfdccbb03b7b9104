"""The report as data, and the page that says what its fields mean."""

import dataclasses
import json
import re
import types
import typing

import pytest

from tests.job_dir.reports import full_report, short_report
from tests.project import ROOT
from tfps.job_dir.report import BestEvaluation, EvaluationRow, Report

PAGE = (ROOT / "docs/report.md").read_text()
ROWS = {
    name: (kind, meaning)
    for name, kind, meaning in re.findall(
        r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE
    )
}
KINDS = typing.get_type_hints(Report)
NAMES = {int: "int", str: "string", float: "float", list: "list"}


def shown(kind):
    """The name that the page has for a type."""
    arguments = [each for each in typing.get_args(kind) if each is not type(None)]
    if isinstance(kind, types.UnionType):
        return f"{shown(arguments[0])} or null"
    return NAMES.get(typing.get_origin(kind) or kind, "object")


def parts(kind):
    """The dataclasses that a field's type names."""
    found = [part for each in typing.get_args(kind) for part in parts(each)]
    return [kind] if dataclasses.is_dataclass(kind) else found


def documented(kind):
    """Fields as the page names them: those of `examples` have rows of their own."""
    for field in dataclasses.fields(kind):
        if field.name == "examples":
            yield from (f"examples.{each.name}" for each in dataclasses.fields(KINDS["examples"]))
        else:
            yield field.name


def test_the_page_describes_every_field_and_no_other():
    assert set(ROWS) == set(documented(Report))


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("examples", "error")])
def test_the_page_says_what_type_a_field_has(name):
    assert ROWS[name][0] == shown(KINDS[name])


@pytest.mark.parametrize("name", [name for name in KINDS if name != "examples"])
def test_the_page_names_what_a_field_is_made_of(name):
    named = set(re.findall(r"`(\w+)`", ROWS[name][1]))
    for part in parts(KINDS[name]):
        if part is BestEvaluation:
            assert {"metric"} <= named
        elif part is EvaluationRow:
            assert {"epoch", "steps"} <= named
        else:
            assert {field.name for field in dataclasses.fields(part)} <= named


def test_the_file_has_the_fields_in_their_order():
    data = json.loads(json.dumps(full_report().to_json()))
    assert list(data) == [field.name for field in dataclasses.fields(Report)]
    assert data["cluster"] == {"workers": 2, "ps": 3}
    assert data["evaluations"][0] == {"epoch": 1, "steps": 20, "auc": 0.82, "loss": 0.3}
    assert data["best_evaluation"] == {"metric": "auc", **data["evaluations"][0]}
    assert data["workers"][1] == {
        "leases": 5,
        "records": 580,
        "seconds": 10.0,
        "idle_seconds": 0.5,
    }
    assert Report.from_json(data) == full_report()


def test_only_a_report_of_a_run_that_failed_has_an_error():
    assert "error" not in short_report().to_json()
    assert Report.from_json(short_report().to_json()) == short_report()


def test_a_report_of_another_version_may_have_fewer_fields_or_more():
    data = full_report().to_json()
    for name in ("best_evaluation", "stopped_early", "left_out"):
        del data[name]
    data["checkpoints"] = {**data["checkpoints"], "later": 1}
    data["later"] = 1
    expected = full_report(best_evaluation=None, stopped_early=None, left_out=[])
    assert Report.from_json(data) == expected
