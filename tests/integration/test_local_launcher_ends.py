"""How a run of the local launcher ends: by its tasks, by signals, by the launcher's own death."""

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


def test_a_chief_that_dies_by_a_signal_is_restarted_a_limited_number_of_times(
    write, start_with_limits
):
    write(
        """
        if job != "chief":
            say("pid", os.getpid())
            serve()
        ask("worker", 0)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    launcher = start_with_limits(max_restarts=2, backoff_seconds=0.1)
    assert launcher.finish() == 128 + signal.SIGKILL
    for number, seconds in (1, "0.1"), (2, "0.2"):
        said = f"[launcher] chief was killed by SIGKILL; restart {number} of 2 in {seconds} s"
        assert said in launcher.lines
    assert launcher.lines.count("[launcher] chief was killed by SIGKILL") == 1
    assert len(re.findall(r"\[worker 0\] pid", launcher.text)) == 1


def test_a_server_that_took_the_chiefs_death_for_the_end_is_there_for_the_next_chief(
    write, start_with_limits
):
    write(
        """
        if job != "chief":
            serve(lambda: "ok" if os.path.exists(mark) else sys.exit(0))
        if not os.path.exists(mark):
            with connect("worker", 0) as peer:
                peer.recv(10)
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        say(ask("worker", 0))
        """.replace("mark", "__file__ + '.mark'")
    )
    launcher = start_with_limits(backoff_seconds=0.1)
    assert launcher.finish() == 0
    assert "[chief] ok" in launcher.lines


def test_a_dead_worker_returns_at_its_address_a_limited_number_of_times(write, start):
    write(
        """
        if job == "worker" and index == 0:
            serve(lambda: os.kill(os.getpid(), signal.SIGKILL))
        elif job != "chief":
            serve()
        say("pid", os.getpid())
        for life in 1, 2:
            wait()
            ask("worker", 0)
        wait()
        say(ask("worker", 1))
        """
    )
    launcher = start("--workers=2", "--ps=1", "--max_restarts=1")
    chief = int(launcher.see(r"\[chief\] pid (\d+)")[1])
    os.kill(chief, signal.SIGUSR1)
    launcher.see(r"\[launcher\] worker 0 was killed by SIGKILL; restart 1 of 1 in 1 s$")
    died = time.monotonic()
    launcher.see(r"\[worker 0\] serving")
    assert time.monotonic() - died > 0.5
    os.kill(chief, signal.SIGUSR1)
    launcher.see("worker 0 was killed by SIGKILL after 1 restarts and stays away; workers left: 1$")
    os.kill(chief, signal.SIGUSR1)
    assert launcher.finish() == 0
    assert "[chief] ok" in launcher.lines
    assert len(re.findall(r"\[worker 0\] serving", launcher.text)) == 2


def test_the_backoff_doubles_and_without_workers_the_run_ends(write, start_with_limits):
    write(
        """
        if job == "worker":
            sys.exit(index + 3)
        if job == "ps":
            serve()
        say("got", wait(signal.SIGTERM).name)
        sys.exit(9)
        """
    )
    launcher = start_with_limits(workers=2, backoff_seconds=0.1, max_restarts=3)
    assert launcher.finish() == 3
    for number, seconds in (1, "0.1"), (2, "0.2"), (3, "0.4"):
        for worker in 0, 1:
            said = f"worker {worker} ended with exit code {worker + 3}; "
            assert f"[launcher] {said}restart {number} of 3 in {seconds} s" in launcher.lines
    assert "[launcher] no worker is left: ending the run" in launcher.lines
    assert "[chief] got SIGTERM" in launcher.lines


@pytest.mark.parametrize(("code", "restarts"), [(3, 1), (2, 0)])
def test_the_evaluator_is_restarted_where_that_helps_and_never_ends_the_run(
    write, start, code, restarts
):
    write(
        f"""
        if job == "evaluator":
            sys.exit({code})
        if job != "chief":
            serve()
        say("pid", os.getpid())
        wait()
        """
    )
    launcher = start("--workers=1", "--ps=1", "--evaluator", "--max_restarts=1")
    ended = f"evaluator 0 ended with exit code {code}"
    launcher.see(f"{ended} and stays away; the run goes on without it$")
    [chief] = {line.split()[-1] for line in launcher.lines if line.startswith("[chief] pid")} or {
        launcher.see(r"\[chief\] pid (\d+)")[1]
    }
    os.kill(int(chief), signal.SIGUSR1)
    assert launcher.finish() == 0
    assert launcher.text.count("restart 1 of 1 in 1 s") == restarts


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_a_users_mistake_ends_the_run(write, start, job):
    write(
        f"""
        if job == {job!r}:
            say("error: cannot bind")
            sys.exit(2)
        if job != "chief":
            serve()
        wait(signal.SIGTERM)
        """
    )
    launcher = start("--workers=1", "--ps=1")
    assert launcher.finish() == 2
    assert f"[{job} 0] error: cannot bind" in launcher.lines
    assert "restart" not in launcher.text


def test_a_chiefs_mistake_ends_the_run(write, start):
    write("sys.exit(2) if job == 'chief' else serve()")
    assert start().finish() == 2


def test_a_worker_that_ends_well_stays_away(write, start):
    write(
        """
        say("pid", os.getpid())
        if job == "ps":
            serve()
        if job == "chief":
            wait()
        """
    )
    launcher = start("--workers=1")
    launcher.see("worker 0 ended by itself")
    chief = re.search(r"\[chief\] pid (\d+)", launcher.text) or launcher.see(r"\[chief\] pid (\d+)")
    os.kill(int(chief[1]), signal.SIGUSR1)
    assert launcher.finish() == 0
    assert "restart" not in launcher.text


def test_a_dead_ps_returns_at_its_address_a_limited_number_of_times(write, start_with_limits):
    write(
        """
        if job == "ps":
            serve(lambda: os.kill(os.getpid(), signal.SIGKILL))
        if job == "worker":
            serve()
        for life in 1, 2:
            ask("ps", 0)
        say("got", wait(signal.SIGTERM).name)
        """
    )
    launcher = start_with_limits(max_restarts=1, backoff_seconds=0.1)
    assert launcher.finish() == 3
    assert "[launcher] ps 0 was killed by SIGKILL; restart 1 of 1 in 0.1 s" in launcher.lines
    ended = "[launcher] ps 0 was killed by SIGKILL after its last restart: ending the run"
    assert ended in launcher.lines
    assert "[chief] got SIGTERM" in launcher.lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_servers_outlive_the_chief(write, start, number):
    write(
        """
        if job != "chief":
            serve()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        say("ready")
        say("got", wait(signal.SIGINT, signal.SIGTERM, signal.SIGHUP).name)
        say("saved", ask("worker", 0), ask("ps", 0))
        sys.exit(17)
        """
    )
    launcher = start("--workers=1", "--ps=1")
    launcher.see("ready")
    launcher.process.send_signal(number)
    assert launcher.finish() == 17
    assert f"[chief] got {number.name}" in launcher.lines
    assert "[chief] saved ok ok" in launcher.lines


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
