"""Signals and environment as every test finds them; which cases are quick; files by length."""

import contextlib
import fnmatch
import gc
import importlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests import durations
from tests.loaded import client
from tests.project import ROOT

_IGNORED = "TFPS_TESTS_IGNORED_SIGNALS"  # tells pytest's own processes what the first one found


def pytest_configure() -> None:
    """Lets programs that tests start have the signals' default actions.

    In a shell's background and under `nohup` SIGINT and SIGHUP are ignored, and what is ignored is
    inherited. What is handled is not: here they are handled by doing nothing.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        known = os.environ.get(_IGNORED, "").split()
        if signal.getsignal(number) is signal.SIG_IGN or number.name in known:
            os.environ[_IGNORED] = " ".join({*known, number.name})
            signal.signal(number, lambda *_: None)
    # Tracing makes millions of objects that stay: to look through them took 5 % of the time.
    gc.set_threshold(100_000, 50, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Has each process import its own share of the tests first.

    All import all of them, and rewrite the asserts of those that none has kept yet: a third of what
    collecting takes.
    """
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    for path in paths[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # told when it is collected
            importlib.import_module(name)


def pytest_collection_finish() -> None:
    """Leaves what imports made out of all later looks for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks as slow all cases that a test's `quick` does not name; puts the longest files first."""
    unnamed = {}
    for item in items:
        for mark in item.iter_markers("quick"):
            test = item.nodeid.partition("[")[0]
            case = item.nodeid.removeprefix(test)[1:-1]
            named = {pattern for pattern in mark.args if fnmatch.fnmatchcase(case, pattern)}
            unnamed[test] = unnamed.get(test, set(mark.args)) - named
            if not named:
                item.add_marker(pytest.mark.slow)
    are_all_here = not any("::" in argument for argument in config.args)
    wrong = {test: patterns for test, patterns in unnamed.items() if patterns}
    if are_all_here and wrong:
        raise pytest.UsageError(f"`quick` names no case: {wrong}")
    # Else a long one that is begun last leaves all other processes without work.
    seconds = durations.read()
    items.sort(key=lambda item: -seconds.get(durations.file_of(item), 0))


@pytest.fixture(scope="session", autouse=True)
def environment_before_all_fixture() -> None:
    client.begin_here()


@pytest.fixture(scope="module", autouse=True)
def environment_as_it_was_fixture() -> Iterator[None]:
    """Takes back what a file's tests leave in the environment, as MLflow's and W&B's libraries do.

    Programs that later tests start would read it, and could not be forks (`tests/loaded`).
    """
    before = dict(os.environ)
    yield
    for name in {*before, *os.environ} - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]
