"""Hands batch scripts to Slurm and asks about the jobs that they made."""

import pathlib
import re
import subprocess
from collections.abc import Iterable, Sequence

from cloud.target import AwayError, JobStatus, Request, ask_again
from tfps.errors import UserError

MARK = "managed-by=tfps"  # in the comment of each job
_SECONDS = 120.0  # for one of Slurm's commands
_AWAY = re.compile(
    "Unable to contact slurm controller|Socket timed out|Connection refused|standby mode"
)
_SUCCESS = "COMPLETED"
_ENDED = frozenset(
    {
        _SUCCESS,
        "BOOT_FAIL",
        "CANCELLED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
_LOG = re.compile(r"(?:-(?P<role>[a-z]+)-(?P<index>\d+))?\.log")  # after name and number


# Of `squeue`: number, state, creation, name, and the comment, which alone may hold any sign.
_QUEUE_FORMAT = "%i|%T|%V|%j|%k"


class SlurmSender:
    """The Slurm cluster whose commands are on this machine."""

    def __init__(self) -> None:
        self._read: dict[pathlib.Path, int] = {}  # bytes, by log

    def send(self, requests: Sequence[Request]) -> str:
        """Runs sbatch, once; returns the job's number."""
        (script,) = requests
        assert isinstance(script, str)
        return _run("sbatch", "--parsable", stdin=script).partition(";")[0].strip()

    def status(self, job: str) -> JobStatus:
        """What Slurm says of a job, for some minutes after its end too."""
        fields = _fields(self._shown(job))
        state = fields["JobState"]
        ended = state in _ENDED
        name = fields.get("JobName", "")
        exit_code = fields.get("ExitCode", "").partition(":")[0]
        return JobStatus(
            name=job,
            title=f"job {job} ({name})",
            state=state,
            created=fields.get("SubmitTime", ""),
            has_ended=ended,
            is_success=state == _SUCCESS,
            message=f"exit code {exit_code}; see {name}-{job}.log" if ended else "",
        )

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        fields = _fields(self._shown(job))
        directory, stem = pathlib.Path(fields.get("WorkDir", ".")), f"{fields['JobName']}-{job}"
        for path in sorted(directory.glob(f"{stem}*.log")):
            match = _LOG.fullmatch(path.name.removeprefix(stem))
            if match is None:
                continue
            task = f"{match['role']} {match['index']}" if match["role"] else "chief"
            for line in self._new_lines(path):
                yield task, line

    def cancel(self, job: str) -> None:
        """Ends a job; its tasks get SIGTERM, and the chief saves."""
        _run("scancel", _number(job))

    def list(self) -> Sequence[JobStatus]:
        """The user's jobs that wait or run and were submitted by this program."""
        printed = _ask("squeue", "--me", "--noheader", "--sort=-V", f"--format={_QUEUE_FORMAT}")
        found = [line.split("|", 4) for line in printed.splitlines()]
        return [
            JobStatus(name=number, title=name, state=state, created=created)
            for number, state, created, name, comment in found
            if MARK in comment
        ]

    def describe(self, job: str) -> Request:
        return self._shown(job)

    def _shown(self, job: str) -> str:
        return _ask("scontrol", "show", "job", _number(job))

    def _new_lines(self, path: pathlib.Path) -> Iterable[str]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read[path] = self._read.get(path, 0) + len(line)
                yield line.decode("utf-8", "backslashreplace").rstrip("\n")


def _fields(shown: str) -> dict[str, str]:
    """What `scontrol show job` prints, by name; a directory may have spaces in it."""
    found = dict(re.findall(r"(\w+)=(\S*)", shown))
    if match := re.search(r"^\s*WorkDir=(.*)$", shown, re.MULTILINE):
        found["WorkDir"] = match[1]
    return found


def _number(job: str) -> str:
    if not re.fullmatch(r"\d+", job):
        raise UserError(f"{job!r} is no job of Slurm; write its number, such as 4711")
    return job


def _away(command: Sequence[str], problem: str) -> AwayError:
    return AwayError(f"`{' '.join(command)}`: {problem}; is Slurm up? (`scontrol ping`)")


def _ask(*command: str) -> str:
    """Runs a command that changes nothing, and again while Slurm is away."""
    return ask_again(lambda: _run(*command))


def _run(*command: str, stdin: str | None = None) -> str:
    """Runs one of Slurm's commands, once; returns what it prints."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise UserError(
            f"{command[0]} is not on this machine: submit on a login node of the cluster, or give "
            "--dry_run and take the script there"
        ) from None
    except subprocess.TimeoutExpired:
        raise _away(command, f"it has not answered for {_SECONDS:.0f} s") from None
    if done.returncode:
        error = " ".join(done.stderr.split()) or f"it ended with {done.returncode}"
        if _AWAY.search(error):
            raise _away(command, error)
        raise UserError(f"`{' '.join(command)}`: {error}")
    return done.stdout
