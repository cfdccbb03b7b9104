"""A stand-in for nvidia-smi: a program on PATH that answers the queries as NVIDIA's does.

Its processes are real ones: those that bear the mark of their test in the environment and may use a
GPU by TF_CONFIG and CUDA_VISIBLE_DEVICES; and tasks of the local launcher, whose environment cannot
be seen, as each has a GPU of its own. Each holds what it has of resident memory, in MiB.
"""

import json
import os
import pathlib
import re
import sys

MARK = "TFPS_STAND_IN_GPUS"  # how many GPUs it has
_TOTAL = 81_559
_FORM = "--format=csv,noheader,nounits"
_TRAINS = ("trainer.task", "benchmarks.keras_fit", "benchmarks.peers.start")


def install(directory):
    """Puts the program into a directory; returns PATH with it."""
    program = directory / "nvidia-smi"
    text = f'#!/bin/sh\nexec {sys.executable} -S {pathlib.Path(__file__).resolve()} "$@"\n'
    program.write_text(text)
    program.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def uuid(index):
    return f"GPU-8f4a1c02-33d1-4c7e-9d5e-00000000000{index}"


def processes(count):
    """GPU, process id and MiB of every marked process that computes on one."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().decode().split("\0")
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            pages = int((entry / "statm").read_text().split()[1])
        except OSError:  # it has ended, or is not ours
            continue
        environ = dict(each.partition("=")[::2] for each in variables)
        if task := _task(words):
            if (index := _gpu_of(entry, task, count)) is not None:
                yield index, int(entry.name), pages * os.sysconf("SC_PAGE_SIZE") >> 20
            continue
        if environ.get(MARK) != str(count) or not any(word in _TRAINS for word in words):
            continue
        config = json.loads(environ.get("TF_CONFIG", "{}"))
        job = config.get("task", {}).get("type", "chief")
        starts = "benchmarks.peers.start" in words and not config
        if job == "ps" or (job == "chief" and "ps" in config.get("cluster", {})) or starts:
            continue
        named = environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
        for index in named.split(","):
            if 0 <= int(index) < count:
                yield int(index), int(entry.name), pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _task(words):
    """Job and index of a task of the local launcher, a fork, by the name of its log."""
    found = re.search(r"--tensorflow_log=\S*/(\w+)-(\d+)\.log", " ".join(words))
    return (found[1], int(found[2])) if found else None


def _parent(entry):
    return (entry / "stat").read_text().rpartition(")")[2].split()[1]


def _gpu_of(entry, task, count):
    """The GPU of a marked task that trains, the first of which has the first; else None."""
    try:
        parent = _parent(entry)
        launcher = _parent(pathlib.Path("/proc", parent))  # whose environment can be seen
        variables = pathlib.Path(f"/proc/{launcher}/environ").read_bytes().decode().split("\0")
        forks = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        lines = [pathlib.Path(f"/proc/{fork}/cmdline").read_bytes().decode() for fork in forks]
    except OSError:  # it has ended
        return None
    job, index = task
    has_ps = any("/ps-0.log" in line for line in lines)
    if f"{MARK}={count}" not in variables or job == "ps" or (job == "chief" and has_ps):
        return None
    return (index + (job == "worker" and not has_ps)) % count


def main(query, form):
    count = int(os.environ[MARK])
    assert form == _FORM or query == "--query-gpu=index"
    used = list(processes(count))
    if query.startswith("--query-compute-apps="):
        for index, pid, memory in used:
            print(f"{uuid(index)}, {pid}, {memory}")
        return
    for index in range(count):
        if query == "--query-gpu=index":
            print(index)
            continue
        memory = sum(each for at, _, each in used if at == index)
        busy = 61 if memory else 0
        name, driver = "NVIDIA H100 80GB HBM3", "570.133.20"
        print(f"{index}, {uuid(index)}, {name}, {driver}, {_TOTAL}, {memory + 4}, {busy}")


if __name__ == "__main__":
    main(*sys.argv[1:])
