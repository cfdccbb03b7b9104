"""Facts about the machine and the software on it."""

import os
import pathlib
import platform
import re
import subprocess
import sys

from benchmarks.datasets import ROOT

_CACHES = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
_VERSIONS = (
    "import importlib.metadata as m, sys;"
    "names = {d.name: d.version for d in m.distributions()};"
    "print(*[f'{n} {names[n]}' for n in sys.argv[1:] if n in names], sep=', ')"
)


def facts(peer_python: str) -> dict[str, str | int]:
    """Hardware and versions.

    Args:
        peer_python: The peers' interpreter.
    """
    return {
        "processor": _find("model name", "/proc/cpuinfo"),
        "cores": os.cpu_count() or 0,
        "caches": _caches(),
        "memory": _find("MemTotal", "/proc/meminfo"),
        "system": platform.platform(),
        "tfps with": versions(sys.executable, "tensorflow", "keras", "numpy"),
        "peers with": versions(peer_python, "tensorflow", "keras", "tf_keras", "torch", "numpy"),
    }


def versions(python: str, *packages: str) -> str:
    """The versions of those packages that an interpreter has."""
    command = [python, "-c", _VERSIONS, *packages]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit() -> str:
    """The checkout's commit, with a plus sign when files differ from it; empty without git."""
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def _find(name: str, path: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.*)$", pathlib.Path(path).read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def _caches() -> str:
    """Level and size of each cache of the first core."""
    found = []
    for index in sorted(_CACHES.glob("index*")):
        level, kind, size = (
            (index / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)
