"""Trains every case and setup in turn, run after run, and keeps what was seen."""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import machine
from benchmarks.datasets import ROOT
from benchmarks.failure import Failed
from benchmarks.gpu import data, systems
from benchmarks.gpu.cases import PEERS, Case, Setup
from benchmarks.gpu.data import Data
from benchmarks.gpu.watch import watching
from benchmarks.measurement import END_SECONDS, Window, measure
from benchmarks.results import Results
from benchmarks.table import SPEED

_GUESSED_SECONDS = 75.0  # for one thing to train, before any was
_FIRST = 1  # the run in which quality is measured too

Work = Sequence[tuple[Case, Setup]]


class Rounds:
    """All runs of a program."""

    def __init__(self, flags: argparse.Namespace, gpus: Sequence[str], results: Results[Case]):
        """Trains nothing yet.

        Args:
            flags: Of the program.
            gpus: Indices of the GPUs that may be used.
            results: Where what is seen is kept; what is there is not trained again.
        """
        self._flags = flags
        self._gpus = gpus
        self._results = results
        self._window = Window(flags.warm_seconds, flags.seconds, flags.limit_seconds)
        self._counts = data.REHEARSED if flags.rehearse else data.COUNTS

    def train(self, work: Work) -> list[str]:
        """Trains what is missing; returns what failed, in a person's words."""
        kept = {
            case.model: data.ensure(self._flags.data, case.model, self._counts) for case, _ in work
        }
        failures = []
        for run, case, setup in turns_left(self._results, work, self._flags.runs):
            began = time.monotonic()
            label = f"run {run}, {case.name}: {setup.name}"
            try:
                figures = self._trained(run, case, setup, kept[case.model])
            except Failed as failure:
                failures.append(f"{label}: {failure}")
                print(f"{label}: failed: {failure}", flush=True)
                continue
            took = round(time.monotonic() - began, 1)
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            about = {"took_seconds": took, "when": when, "commit": machine.commit()}
            self._results.add(case, setup.name, run, {**figures, **about})
            print(f"{label}: {_told(figures)}; took {took:.0f} s", flush=True)
        return failures

    def _trained(self, run: int, case: Case, setup: Setup, kept: Data) -> dict[str, Any]:
        """What is seen of one run of one setup."""
        figures: dict[str, Any] = {}
        if setup.gpus:
            figures = self._measured(case, setup, kept)
        if setup.mode not in PEERS and not setup.kills and run == _FIRST:
            figures["auc"] = self._auc(case, setup, kept)
        return figures

    def _measured(self, case: Case, setup: Setup, kept: Data) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="tfps-gpu-") as directory:
            job_dir = pathlib.Path(directory, "job")
            places = systems.Places(kept.trained, job_dir)
            system = systems.trained_for_ever(case, setup, self._flags, places, self._gpus)
            with watching(setup, job_dir) as watch:
                return measure(system, self._window, pathlib.Path(directory, "log"), watch)

    def _auc(self, case: Case, setup: Setup, kept: Data) -> float:
        """Trains to the end; returns the AUC on the evaluation records."""
        limit = self._flags.limit_seconds
        with tempfile.TemporaryDirectory(prefix="tfps-gpu-") as directory:
            job_dir, log = pathlib.Path(directory, "job"), pathlib.Path(directory, "log")
            command = systems.trained_to_the_end(case, setup, kept.learnt, kept.evaluated, job_dir)
            environ = {**os.environ, **systems.environ(setup, self._gpus)}
            with log.open("w") as output:
                program = subprocess.Popen(
                    command, cwd=ROOT, env=environ, stdout=output, stderr=output
                )
                try:
                    code = program.wait(limit)
                except subprocess.TimeoutExpired:
                    raise Failed(f"training to the end took more than {limit:g} s") from None
                finally:
                    _end(program)
            if code:
                said = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                raise Failed(f"training to the end ended with {code}:\n{said}")
            report = json.loads((job_dir / "report.json").read_text())
        auc: float = report["evaluations"][-1]["auc"]
        return round(auc, 5)


def minutes(results: Results[Case], count: int) -> int:
    """How long so many things will take, by those that were trained."""
    took = [run["took_seconds"] for runs in results.runs.values() for run in runs.values()]
    return math.ceil(count * (statistics.mean(took) if took else _GUESSED_SECONDS) / 60)


def turns_left(results: Results[Case], work: Work, runs: int) -> list[tuple[int, Case, Setup]]:
    """What the results do not have yet, run after run; the CPU's quality, and a kill, once."""
    return [
        (run, case, setup)
        for run in range(_FIRST, runs + 1)
        for case, setup in work
        if (run == _FIRST or (setup.gpus and not setup.kills))
        and not results.has(case, setup.name, run)
    ]


def _end(program: subprocess.Popen[bytes]) -> None:
    """Ends a job, whose launcher ends its tasks."""
    program.terminate()
    try:
        program.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _told(figures: dict[str, Any]) -> str:
    told = []
    if SPEED in figures:
        used = figures["gpu"]["utilization"].values()
        busy = ", ".join("not told" if each is None else f"{each:.0f} %" for each in used)
        told.append(f"{figures[SPEED]:,.0f} examples/s, GPU {busy}")
    if "auc" in figures:
        told.append(f"AUC {figures['auc']:.4f}")
    return ", ".join(told)
