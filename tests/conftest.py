"""Signals and environment as every test finds them; files with long tests first."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest

from tests.loaded import client

# So that none of them is begun last, when only one process still has work.
_LONGEST = (
    "test_killed_saves.py",
    "test_hangs.py",
    "test_keras_models.py",
    "test_killed_workers.py",
    "test_training.py",
    "test_recovery.py",
    "test_bad_input.py",
    "test_closures.py",
    "test_barrier_loop.py",
    "test_evaluations.py",
    "test_evaluator.py",
    "test_faults.py",
    "test_parameter_store.py",
    "test_embedding_training.py",
    "test_directory.py",
    "test_readme.py",
)
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of some files before all others."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(_LONGEST)))


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
