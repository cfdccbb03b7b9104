"""Limits of the group of processes that a container, Slurm or systemd puts this one in."""

import pathlib
from collections.abc import Iterator

_ROOT = pathlib.Path("/sys/fs/cgroup")
_OWN = pathlib.Path("/proc/self/cgroup")


def memory_limits() -> Iterator[int]:
    """The limits of this process's group, and of those that hold it; bytes."""
    for _, file in _files("memory", "memory.max", "memory.limit_in_bytes"):
        text = _text(file)
        if text.isdecimal():  # else "max", or there is no such file
            yield int(text)


def cpu_limits() -> Iterator[float]:
    """The cores that the groups may use at a time."""
    for is_new, file in _files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        quota, _, period = _text(file).partition(" ")
        if not is_new:
            period = _text(file.with_name("cpu.cfs_period_us"))
        if quota.isdecimal() and period.isdecimal():  # else "max" or -1
            yield int(quota) / int(period)


def _files(controller: str, new: str, old: str) -> Iterator[tuple[bool, pathlib.Path]]:
    """A limit's files of version 2 (`new`) and 1, whether they are of 2; there may be none."""
    for line in _text(_OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root, name = (_ROOT / controller, old) if controllers else (_ROOT, new)
        # In a container the mounted root is the own group, which has another path outside.
        group = pathlib.PurePosixPath(path)
        for each in (group, *group.parents):
            yield not controllers, root / each.relative_to("/") / name


def _text(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""
