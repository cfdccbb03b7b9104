"""Real signals to a process of its own, since a signal's handlers belong to a process."""

import signal
import subprocess
import sys
import textwrap

import pytest

from tests.project import ROOT

PRELUDE = """
import os, signal, time
from trainer.chief.interruption import Interrupted, Interruption

def send(number):
    os.kill(os.getpid(), number)

interruption = Interruption({grace})
interruption.install()
"""


def run(body: str, grace: float = 60.0) -> subprocess.CompletedProcess[str]:
    program = PRELUDE.format(grace=grace) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_raised_at_once(number: signal.Signals) -> None:
    ended = run(
        f"""
        try:
            send({int(number)})
            print("continued")
        except Interrupted as interrupted:
            print("got", interrupted.signal)
        """
    )
    assert ended.stdout == f"got {int(number)}\n", ended.stderr


def test_what_c_code_makes_of_a_signal_is_recognized() -> None:
    """pybind11 does so with an exception that arises while it fills a list."""
    ended = run(
        """
        def ask_c_code(number=None):
            try:
                if number:
                    send(number)
            except Interrupted:
                pass
            raise SystemError("bad argument to internal function")

        def build_model(number=None):
            try:
                ask_c_code(number)
            except Exception as error:
                raise ValueError("build_model() fails") from error

        for number in (None, signal.SIGTERM):
            try:
                with interruption.recognized():
                    build_model(number)
            except ValueError as error:
                print(error)
            except Interrupted as interrupted:
                print("got", interrupted.signal)
        """
    )
    assert ended.stdout == "build_model() fails\ngot 15\n", ended.stderr


SWALLOWED = """
class Held:
    def __del__(self):  # what arises in it goes to sys.unraisablehook, as in TensorFlow's checks
        try:
            send(signal.SIGTERM)
        except Interrupted as interrupted:
            raise SystemError("returned a result with an exception set") from interrupted

try:
    with interruption.recognized():
        held = Held()
        del held
{then}
except Interrupted as interrupted:
    print("got", interrupted.signal)
"""


def run_after_swallowed(then: str) -> subprocess.CompletedProcess[str]:
    """Runs a block in which C code has swallowed a signal."""
    indented = textwrap.indent(textwrap.dedent(then), 8 * " ")
    return run(SWALLOWED.replace("{then}", indented))


@pytest.mark.parametrize(
    "then",
    [
        "raise AttributeError('no _type_spec')",  # what the check has found is wrong
        "while time.sleep(0.001) is None: pass",
    ],
)
def test_a_signal_that_c_code_swallows_is_not_lost(then: str) -> None:
    ended = run_after_swallowed(then)
    assert ended.stdout == "got 15\n", ended.stderr


def test_a_block_that_swallows_a_signal_may_come_to_its_end() -> None:
    ended = run_after_swallowed(
        """
        with interruption.deferred():
            for _ in range(100):
                time.sleep(0.001)
            print("saved")
        """
    )
    assert ended.stdout == "saved\ngot 15\n", ended.stderr


def test_what_else_cannot_be_raised_goes_where_it_went() -> None:
    ended = run(
        """
        class Held:
            def __del__(self):
                raise ValueError("of something else")

        held = Held()
        del held
        """
    )
    assert "ValueError: of something else" in ended.stderr


def test_a_block_may_come_to_its_end() -> None:
    ended = run(
        """
        try:
            with interruption.deferred():
                print(interruption.is_requested)
                send(signal.SIGTERM)
                print(interruption.is_requested)
            print("continued")
        except Interrupted as interrupted:
            print("got", interrupted.signal)
        """
    )
    assert ended.stdout == "False\nTrue\ngot 15\n", ended.stderr


def test_a_block_that_does_not_end_is_interrupted() -> None:
    ended = run(
        """
        try:
            with interruption.deferred():
                send(signal.SIGTERM)
                time.sleep(50)
        except Interrupted as interrupted:
            print("got", interrupted.signal)
        """,
        grace=0.0,
    )
    assert ended.stdout == "got 15\n", ended.stderr


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_sigint_after_a_signal_kills(first: signal.Signals) -> None:
    ended = run(
        f"""
        with interruption.deferred():
            send({int(first)})
            send(signal.SIGINT)
            time.sleep(50)
        """
    )
    assert ended.returncode == -signal.SIGINT


def test_sigterm_again_changes_nothing() -> None:
    ended = run(
        """
        try:
            with interruption.deferred():
                for _ in range(3):
                    send(signal.SIGTERM)
            print("continued")
        except Interrupted as interrupted:
            print("got", interrupted.signal)
        """
    )
    assert ended.stdout == "got 15\n", ended.stderr


def test_an_error_in_the_block_stays_that_error() -> None:
    ended = run(
        """
        try:
            with interruption.deferred():
                send(signal.SIGTERM)
                raise ValueError("cannot save")
        except ValueError as error:
            print(error)
        """
    )
    assert ended.stdout == "cannot save\n", ended.stderr
