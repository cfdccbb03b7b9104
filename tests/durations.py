"""How long the files of tests take, in durations.json; `-p tests.durations` writes it again."""

import collections
import json
import pathlib

import pytest

KEPT = pathlib.Path(__file__).with_suffix(".json")
_seconds: collections.Counter[str] = collections.Counter()


def read() -> dict[str, int]:
    """Seconds by file, as they were when they were last written."""
    kept: dict[str, int] = json.loads(KEPT.read_text())
    return kept


def file_of(test: pytest.Item | pytest.TestReport) -> str:
    """The file of a test, from the project's root."""
    return test.nodeid.partition("::")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds what a test took."""
    _seconds[file_of(report)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keeps the files of a second or more."""
    if hasattr(session.config, "workerinput"):  # the process that distributes tests hears of all
        return
    longest = {file: round(seconds) for file, seconds in _seconds.most_common() if seconds >= 1}
    KEPT.write_text(json.dumps(longest, indent=1) + "\n")
