"""A namespace of a Kubernetes cluster, reached with the program kubectl."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from cloud.target import AwayError, ask_again
from tfps.errors import UserError

PROGRAM = "kubectl"
_SECONDS = 300.0  # for one command
_TRANSIENT = re.compile(
    r"\((Conflict|InternalError|ServerTimeout|ServiceUnavailable|Timeout|TooManyRequests)\)"
    r"|connection (refused|reset|to the server)|\b[Tt]imeout\b|context deadline exceeded|\bEOF\b"
    r"|no such host|unreachable|currently unable to handle|object has been modified"
)
_NOT_CONFIGURED = "localhost:8080"  # where kubectl looks without a kubeconfig
_LOG_LINE = re.compile(r"[EIW]\d{4} .*")  # kubectl's own, next to its message
Json = dict[str, Any]  # an object of the API


class RefusedError(UserError):
    """A command that failed, and would again; `reason` is the API's, such as NotFound, or ""."""

    def __init__(self, message: str, reason: str):
        super().__init__(message)
        self.reason = reason


def check_here() -> None:
    if not shutil.which(PROGRAM):
        raise UserError(
            f"{PROGRAM} is not on this machine: install it (https://kubernetes.io/docs/tasks/tools/"
            "), or give --dry_run and take the printed manifests to where it is"
        )


class Kubectl:
    """One namespace and context, either of which may be empty, for that of the kubeconfig.

    Every command raises a `RefusedError` for what the cluster refuses, and a `RunError` if it does
    not answer however often it is asked.
    """

    def __init__(self, namespace: str = "", context: str = ""):
        self.namespace = namespace
        self.place = f"namespace {namespace}" if namespace else "the context's namespace"
        self._flags = _flags(namespace=namespace, context=context)
        # With which this project's programs reach the same place again.
        self.again = " ".join(_flags(namespace=namespace, kube_context=context))

    def placed(self, manifests: Sequence[Json]) -> tuple[Json, ...]:
        """Manifests with their namespace, where it is known."""
        own = {"namespace": self.namespace} if self.namespace else {}
        return tuple({**x, "metadata": {**x["metadata"], **own}} for x in manifests)

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of a command, which is run again if the cluster is busy or away."""
        check_here()
        return ask_again(lambda: self._run(arguments, stdin))

    def _run(self, arguments: Sequence[str], stdin: str | None) -> str:
        command = f"`{' '.join([PROGRAM, *arguments])}`"
        try:
            done = subprocess.run(
                [PROGRAM, *self._flags, *arguments],
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="backslashreplace",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _away(command, f"it has not answered for {_SECONDS:g} s") from None
        if not done.returncode:
            return done.stdout
        problem = _problem(done.stderr) or f"it ended with {done.returncode}"
        if _NOT_CONFIGURED in problem or not _TRANSIENT.search(problem):
            match = re.search(r"from server \((\w+)\)", problem)
            raise RefusedError(f"{command}: {problem}", match[1] if match else "")
        raise _away(command, problem)

    def get(self, *arguments: str, stdin: str | None = None) -> list[Json]:
        """The objects that `kubectl get` finds, without who set which field."""
        text = self.run("get", *arguments, "--output=json", stdin=stdin)
        if not text:  # with --ignore-not-found
            return []
        found: Json = json.loads(text)
        return list(found["items"]) if found["kind"] == "List" else [found]

    def list(self, kinds: str, labels: Mapping[str, str]) -> list[Json]:
        """All objects of some kinds that have these labels."""
        return self.get(kinds, selected(labels))

    def apply(self, manifests: Sequence[Json]) -> None:
        """Makes objects, or changes them into what the manifests say, in their order."""
        how = ("--server-side", "--force-conflicts", "--field-manager=tfps")
        self.run("apply", *how, "--filename=-", stdin=documents(manifests))

    def delete(self, *what: str, stdin: str | None = None) -> Sequence[str]:
        """Deletes what there is of some objects, and waits for no end; which those were."""
        how = ("--ignore-not-found", "--wait=false", "--output=name")
        printed = self.run("delete", *how, *what, stdin=stdin)
        return [line for line in printed.splitlines() if "/" in line]  # else that there is none


def _away(command: str, problem: str) -> AwayError:
    how = "look at the cluster with `kubectl cluster-info`, then try again"
    return AwayError(f"{command}: {problem}; {how}")


def selected(labels: Mapping[str, str]) -> str:
    """The flag of kubectl for objects that have all of these labels."""
    return "--selector=" + ",".join(f"{key}={value}" for key, value in labels.items())


def documents(manifests: Sequence[Json]) -> str:
    """Manifests as kubectl reads them on its standard input."""
    # Without a line of --- at the beginning older ones take all for one document of JSON.
    return "".join(f"---\n{json.dumps(each)}\n" for each in manifests)


def _flags(**values: str) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items() if value]


def _problem(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if not _LOG_LINE.fullmatch(line)]
    return " ".join(" ".join(lines or stderr.splitlines()).split()).removeprefix("error: ")
