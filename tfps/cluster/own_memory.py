"""How much memory this process may have."""

import os
import resource

# Of the group of processes that a container, Slurm or systemd puts this one in: version 2, and 1.
_GROUP_LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"


def limit() -> int:
    """The machine's memory in bytes, or less where a limit of the process or its container says."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    for path in _GROUP_LIMITS:
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue  # there is no such group
        if text.isdecimal():  # else "max"
            limits.append(int(text))
    return min(limits)
