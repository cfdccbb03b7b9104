"""Slurm's commands as far as the batch script uses them, on this machine.

`install` puts `scontrol` and `srun` into a directory for PATH. Every node is an address of the
loopback interface. An option that the script should not use is an error. As Slurm 22.05 does it,
`srun` continues when one of its tasks fails, passes SIGUSR1 on to every process of a step, and
kills them when it gets SIGTERM, unless the job is being cancelled; `scancel --signal` signals the
steps' processes alone, `scancel` the script and every srun as well. `tests/real_slurm` has the real
one.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

NODES = ("127.0.0.2", "127.0.0.3")


def install(directory: pathlib.Path) -> None:
    """Makes the commands."""
    for name in ("scontrol", "srun", "sbatch", "squeue", "scancel"):
        command = directory / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        command.chmod(0o755)


def scontrol(arguments: list[str]) -> int:
    if arguments[:2] == ["show", "hostnames"]:
        assert arguments[2] == os.environ["SLURM_JOB_NODELIST"] == "node[1-2]"
        print("\n".join(NODES))
        return 0
    if arguments == ["show", "job", "4711"]:
        state = _look()
        print(f"JobId=4711 JobName=criteo\n   JobState={state} ExitCode=0:0")
        print(f"   SubmitTime=2026-11-21T10:00:00\n   WorkDir={pathlib.Path.cwd()}")
        return 0
    if arguments == ["requeue", os.environ.get("SLURM_JOB_ID")]:
        pathlib.Path("requeued").touch()
        os.kill(os.getppid(), signal.SIGTERM)  # the script, which is not to continue
        return 0
    print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
    return 1


def _look() -> str:
    """The state of job 4711: that of each look is a line of `state`, the last one stays.

    Before the last one its log grows by what is in `written-in-between`.
    """
    states, more = pathlib.Path("state"), pathlib.Path("written-in-between")
    now, *later = states.read_text().splitlines()
    if later:
        states.write_text("\n".join(later))
    elif more.exists():
        with pathlib.Path("criteo-4711.log").open("a") as log:
            log.write(more.read_text())
        more.unlink()
    return now


def srun(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ntasks", type=int, required=True)
    parser.add_argument("--distribution", choices=["arbitrary"], required=True)
    parser.add_argument("--kill-on-bad-exit", choices=["0"], required=True)
    parser.add_argument("--mpi", choices=["none"], required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--wait", choices=["0"], required=True)
    parser.add_argument("--cpu-bind", choices=["none"], required=True)
    parser.add_argument("--open-mode", choices=["append"], required=True)
    parser.add_argument("--output", default="")
    parser.add_argument("--overlap", action="store_true", required=True)
    parser.add_argument("--no-kill", action="store_true", required=True)
    gpus = parser.add_mutually_exclusive_group(required=True)
    gpus.add_argument("--gres", choices=["none"])
    gpus.add_argument("--gpus-per-task")
    place = next(i for i, each in enumerate(arguments) if not each.startswith("--"))
    options = parser.parse_args(arguments[:place])
    hosts = pathlib.Path(os.environ["SLURM_HOSTFILE"]).read_text().split()
    assert (len(hosts), len(set(hosts))) == (options.ntasks, options.nodes)
    tasks = [_start(arguments[place:], options.output, i, host) for i, host in enumerate(hosts)]

    def pass_on(number: int, _: object) -> None:
        if number == signal.SIGTERM:
            print("srun: forcing job termination", file=sys.stderr, flush=True)
            if pathlib.Path("cancelled").exists():
                return
            number = signal.SIGKILL
        for task in tasks:
            if task.poll() is None:
                os.killpg(task.pid, number)

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pass_on)
    while any([task.poll() is None for task in tasks]):  # each of them is asked
        time.sleep(0.02)
    codes = [task.returncode if task.returncode >= 0 else 128 - task.returncode for task in tasks]
    for index, (task, code) in enumerate(zip(tasks, codes, strict=True)):
        pathlib.Path(f"{task.pid}.task").unlink()
        if code:
            # One write: print makes two of a line, between which another srun's may come.
            text = f"srun: error: {hosts[index]}: task {index}: Exited with exit code {code}\n"
            os.write(sys.stderr.fileno(), text.encode())
    return max(codes)


def _start(command: list[str], output: str, index: int, host: str) -> subprocess.Popen[bytes]:
    own = {
        "SLURM_PROCID": str(index),
        "SLURMD_NODENAME": host,
        "SLURM_NODEID": str(NODES.index(host)),
    }
    name = output.replace("%j", os.environ["SLURM_JOB_ID"]).replace("%t", str(index))
    file = open(name, "ab") if output else None  # noqa: SIM115 - the task's, to its end
    task = subprocess.Popen(
        command, env=os.environ | own, stdout=file, stderr=file, start_new_session=True
    )
    pathlib.Path(f"{task.pid}.task").touch()  # for scancel
    return task


def sbatch(arguments: list[str]) -> int:
    """Keeps the script and numbers the job."""
    assert arguments[0] == "--parsable"
    pathlib.Path("submitted").write_text(sys.stdin.read())
    pathlib.Path("state").write_text("COMPLETED")
    print("4711;cluster")
    return 0


def scancel(arguments: list[str]) -> int:
    if arguments == ["4711"]:
        return 0
    if arguments == ["--signal=TERM", "7"]:
        _signal_tasks()
        return 0
    if arguments == ["7"]:
        pathlib.Path("cancelled").touch()
        _signal_tasks()
        os.killpg(int(pathlib.Path("batch.pid").read_text()), signal.SIGTERM)
        return 0
    print(
        f"scancel: error: Kill job error on job id {arguments[0]}: Invalid job id", file=sys.stderr
    )
    return 1


def _signal_tasks() -> None:
    found = list(pathlib.Path().glob("*.task"))
    if not found:
        print("scancel finds no task", flush=True)
    for path in found:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(path.stem), signal.SIGTERM)


def squeue(arguments: list[str]) -> int:
    assert arguments[:2] == ["--me", "--noheader"]
    assert arguments[-1] == "--format=%i|%T|%V|%j|%k"
    print("4711|RUNNING|2026-11-21T10:00:00|criteo|managed-by=tfps,team=ads")
    print("4710|PENDING|2026-11-21T09:00:00|other|(null)")
    return 0


def _is_away() -> bool:
    """Whether the controller does not answer, as for so many commands as `away` says."""
    away = pathlib.Path("away")
    left = int(away.read_text()) if away.exists() else 0
    if left:
        away.write_text(str(left - 1))
    return left > 0


if __name__ == "__main__":
    if _is_away():
        problem = "Unable to contact slurm controller (connect failure)"
        sys.exit(f"slurm_load_jobs error: {problem}")
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
