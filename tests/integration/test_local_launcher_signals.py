"""Signals to the local launcher, and its own death."""

import os
import re
import select
import signal
import time

import pytest
from launcher_fixtures import PATIENCE, start_fixture, start_with_limits_fixture, write_fixture  # noqa: F401

WAITING = """
say("pid", os.getpid())
if job != "chief":
    serve()
"""


def open_pids(text):
    """Descriptors that become readable when the processes named "pid N" in the text end."""
    return [os.pidfd_open(int(pid)) for pid in re.findall(r"\bpid (\d+)", text)]


def assert_all_end(descriptors):
    left = set(descriptors)
    deadline = time.monotonic() + PATIENCE
    try:
        while left:
            ended = select.select(list(left), [], [], max(0, deadline - time.monotonic()))[0]
            assert ended, f"{len(left)} processes survived"
            left -= set(ended)
    finally:
        for descriptor in left:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in descriptors:
            os.close(descriptor)


def assert_gone(*pids):
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_servers_outlive_the_chief(write, start, number):
    write(
        """
        if job != "chief":
            serve()
        say("ready")
        say("got", wait(signal.SIGINT, signal.SIGTERM).name)
        say("saved", ask("worker", 0), ask("ps", 0))
        sys.exit(17)
        """
    )
    launcher = start("--workers=1", "--ps=1")
    launcher.see("ready")
    launcher.process.send_signal(number)
    assert launcher.finish() == 17
    got = "SIGTERM" if number == signal.SIGHUP else number.name  # a chief knows no SIGHUP
    assert f"[chief] got {got}" in launcher.lines
    assert "[chief] saved ok ok" in launcher.lines


def test_a_terminal_that_is_closed_gives_the_chief_its_grace(write, start):
    """The shell and then the kernel send a signal each."""
    write(
        """
        if job != "chief":
            serve()
        say("ready")
        wait(signal.SIGTERM)
        time.sleep(1)
        sys.exit(17)
        """
    )
    launcher = start("--workers=1", "--ps=1")
    launcher.see("ready")
    launcher.process.send_signal(signal.SIGHUP)
    launcher.see("SIGHUP: passed on as SIGTERM to the chief, which has 30 s")
    launcher.process.send_signal(signal.SIGHUP)
    assert launcher.finish() == 17


def test_a_chief_that_goes_on_after_its_grace_gets_sigterm(write, start):
    write(WAITING + "say('got', wait(signal.SIGTERM).name)\nsys.exit(4)")
    launcher = start("--workers=1", "--grace_seconds=1")
    launcher.see(r"\[chief\] pid")
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.finish() == 4
    assert "[launcher] the chief runs on after 1 s: SIGTERM" in launcher.lines


def test_a_chief_that_never_ends_is_killed(write, start_with_limits):
    write(WAITING + "wait()")
    launcher = start_with_limits(grace_seconds=0.1, end_seconds=0.1)
    launcher.see(r"\[chief\] pid")
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.finish() == 128 + signal.SIGKILL
    assert_gone(*re.findall(r"\bpid (\d+)", launcher.text))


def test_servers_that_ignore_sigterm_are_killed(write, start_with_limits):
    write(
        """
        if job != "chief":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            serve()
        say(ask("worker", 0), ask("ps", 0))
        """
    )
    launcher = start_with_limits(end_seconds=0.1)
    assert launcher.finish() == 0
    assert "[launcher] worker 0 runs on after SIGTERM: SIGKILL" in launcher.lines
    assert_gone(*re.findall(r"serving (\d+)", launcher.text))


def test_a_second_signal_kills_at_once(write, start):
    write(WAITING + "wait()")
    launcher = start("--workers=2", "--ps=2")
    for job in "ps 0", "ps 1", "worker 0", "worker 1", "chief":
        if not re.search(rf"\[{job}\] pid", launcher.text):
            launcher.see(rf"\[{job}\] pid")
    launcher.process.send_signal(signal.SIGINT)
    launcher.see("SIGINT: passed on to the chief, which has 30 s")
    launcher.process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    assert launcher.finish() == 128 + signal.SIGKILL
    assert time.monotonic() - begin < 20
    assert "[launcher] SIGINT again: killing every task" in launcher.lines
    pids = re.findall(r"\bpid (\d+)", launcher.text)
    assert len(pids) == 5
    assert_gone(*pids)


def test_nothing_survives_sigkill_of_the_launcher(write, start):
    write(WAITING + "wait()")
    launcher = start("--workers=2", "--ps=2")
    while len(re.findall(r"\bpid (\d+)", launcher.text)) < 5:
        launcher.see(r"\bpid \d+")
    tasks = open_pids(launcher.text)
    launcher.process.kill()
    assert_all_end(tasks)


def test_what_a_task_left_behind_ends_with_it(write, start):
    write(
        """
        if job == "chief":
            say("pid", subprocess.Popen(["sleep", "600"]).pid)
            wait()
        serve()
        """
    )
    launcher = start("--workers=1")
    child = launcher.see(r"\[chief\] pid (\d+)")
    left = open_pids(child[0])
    launcher.process.send_signal(signal.SIGINT)
    launcher.see("passed on")
    launcher.process.send_signal(signal.SIGINT)
    assert_all_end(left)
    launcher.finish()


def test_a_closed_output_ends_the_run_as_sigterm_does(write, start):
    write(
        """
        if job != "chief":
            serve()
        say("begun")
        while signal.sigtimedwait([signal.SIGTERM], 0.01) is None:
            say("more")
        sys.exit(5)
        """
    )
    reading, writing = os.pipe()
    launcher = start("--workers=1", stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as output:
        assert any("begun" in line for line in output)
    assert launcher.process.wait(PATIENCE) == 5
    assert launcher.process.stderr.read() == b""
