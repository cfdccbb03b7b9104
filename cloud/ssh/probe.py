"""What is asked of a machine before a job starts there: this file's text runs on it.

It is no module of an installed project there, and knows nothing but Python itself.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import socket
import sys

_REACH_SECONDS = 10.0


def _version(package: str) -> str | None:
    """The version of what `import` would find; None without it."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    if package != "tfps":  # as tensorflow-cpu is called tensorflow, too
        names = importlib.metadata.packages_distributions().get(package, [package])
        return importlib.metadata.version(package if package in names else names[0])
    with open(found.origin, encoding="utf-8") as file:
        lines = [line.split('"')[1] for line in file if line.startswith("__version__ = ")]
    return lines[0] if lines else None


def _listen(port: int) -> socket.socket | None:
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    with contextlib.suppress(OSError):
        return socket.create_server(("", port), family=family, dualstack_ipv6=is_dual, backlog=128)
    return None


def _reach(host: str, port: int) -> str | None:
    """Why the port of another machine cannot be reached; None where it can."""
    try:
        socket.create_connection((host, port), _REACH_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _put(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8"):
        pass


def _main() -> None:
    asked = json.loads(sys.stdin.readline())
    listening = [_listen(port) for port in asked["ports"] or [0]]
    if asked["put"]:
        _put(asked["put"])
    try:
        found = {
            "tfps": _version("tfps"),
            "tensorflow": _version("tensorflow"),
            "missing": [path for path in asked["paths"] if not os.path.exists(path)],
            "taken": [n for n, each in zip(asked["ports"], listening, strict=False) if not each],
            "free_bytes": shutil.disk_usage(".").free,
            "port": listening[0].getsockname()[1] if listening[0] else 0,
        }
        _say(found)
        if others := json.loads(sys.stdin.readline() or "null"):
            seen = {
                "refused": [_reach(*each) for each in others["others"]],
                "sees": not others["look"] or os.path.exists(others["look"]),
            }
            _say(seen)
            sys.stdin.read()
    finally:
        if asked["put"]:
            with contextlib.suppress(OSError):
                os.remove(asked["put"])


if __name__ == "__main__":
    _main()
