"""How a run of the local launcher ends by its tasks, and which of them are restarted."""

import os
import re
import signal

import pytest
from launcher_fixtures import PATIENCE, start_fixture, start_with_limits_fixture, write_fixture  # noqa: F401


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


def test_restarts_of_a_task_that_had_run_for_long_count_from_0_again(write, start_with_limits):
    write(
        """
        if job != "chief":
            serve()
        with open(__file__ + ".lives", "a") as lives:
            lives.write("x")
            if lives.tell() == 3:
                sys.exit(0)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    launcher = start_with_limits(max_restarts=1, backoff_seconds=0.1, steady_seconds=0.2)
    assert launcher.finish() == 0
    said = "[launcher] chief was killed by SIGKILL; restart 1 of 1 in 0.1 s"
    assert launcher.lines.count(said) == 2


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
        def die():
            say("dies", time.monotonic())
            os.kill(os.getpid(), signal.SIGKILL)
        if job == "worker" and index == 0:
            say("begins", time.monotonic())
            serve(die)
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
    launcher.see(r"\[worker 0\] serving")
    os.kill(chief, signal.SIGUSR1)
    launcher.see("worker 0 was killed by SIGKILL after 1 restarts and stays away; workers left: 1$")
    os.kill(chief, signal.SIGUSR1)
    assert launcher.finish() == 0
    begins, dies = (
        [float(time) for time in re.findall(rf"\[worker 0\] {what} (\S+)", launcher.text)]
        for what in ("begins", "dies")
    )
    assert begins[1] - dies[0] >= 1.0
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
    launcher.see(f"{ended} and stays away; the run continues without it$")
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
