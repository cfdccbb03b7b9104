import types

import pytest


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def clock_fixture(monkeypatch):
    """The time as the chief's state sees it, which stands still."""
    clock = Clock()
    stopped = types.SimpleNamespace(time=clock, monotonic=clock)
    monkeypatch.setattr("trainer.chief.state.time", stopped)
    return clock
