"""The library that lets a process's storage misbehave: see `shim.c`."""

import ctypes
import dataclasses
import errno
import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
LOOK, READ, LIST, CREATE, WRITE, RENAME, REMOVE, SYNC = (1 << k for k in range(8))
ALL = 255
_NOTHING, _FAILS, _SLOW, _SHORT, _STALE = range(5)
FOREVER = 1 << 40


@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong with the calls that it can meet.

    Attributes:
        effect: As in `shim.c`.
        error: The `errno` of calls that fail.
        meets: Kinds of calls.
    """

    effect: int
    error: int
    meets: int


FAULTS = {
    "EIO": Fault(_FAILS, errno.EIO, ALL),
    "ESTALE": Fault(_FAILS, errno.ESTALE, ALL),
    "ETIMEDOUT": Fault(_FAILS, errno.ETIMEDOUT, ALL),
    "ENOSPC": Fault(_FAILS, errno.ENOSPC, CREATE | WRITE | RENAME | SYNC),
    "EROFS": Fault(_FAILS, errno.EROFS, CREATE | RENAME | REMOVE),
    "slow": Fault(_SLOW, 0, ALL),
    "short": Fault(_SHORT, 0, READ | WRITE),
    "stale": Fault(_STALE, 0, LIST),
}
NOTHING = Fault(_NOTHING, 0, 0)


def compile_shim(directory: pathlib.Path) -> pathlib.Path:
    """Makes the library; needs `COMPILER`."""
    assert COMPILER
    library = directory / "shim.so"
    source = pathlib.Path(__file__).with_name("shim.c")
    command = [COMPILER, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def misbehave(
    roots: Sequence[str], fault: Fault, first: int, last: int, told: str = "", record: str = ""
) -> None:
    """Lets this process's calls number `first` to `last` on files below `roots` meet a fault."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    library.misbehave(
        ":".join(roots).encode(),
        fault.effect,
        fault.error,
        fault.meets,
        ctypes.c_long(first),
        ctypes.c_long(last),
        told.encode(),
        record.encode(),
    )
