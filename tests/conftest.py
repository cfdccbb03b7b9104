"""Signals as every test finds them, however pytest was started."""

import os
import signal

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
