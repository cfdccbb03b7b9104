"""The results as markdown: what holds, how fast, where a step's time goes."""

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.cases import FIT, PEERS, SETUPS, TORCH, Case, Setup
from benchmarks.gpu.checks import Check, all_checks, used_gpus
from benchmarks.results import Results, Spread
from benchmarks.table import SPEED, markdown, number, ratio

_BY_NAME = {setup.name: setup for setup in SETUPS}


def report(results: Results[Case]) -> str:
    """All of it.

    Args:
        results: What was measured.
    """
    checks = all_checks(results)
    parts = ["# tfps on GPUs", _heading(results), "## What must hold", _checked(checks)]
    parts.append("## How fast")
    for case in dict.fromkeys(case for case in results.cases() if _rows(results, case)):
        parts.append(f"### {case.name}\n\n{case_table(results, case)}")
    parts += _where_time_goes(results)
    return "\n\n".join(parts) + "\n"


def verdict(checks: Sequence[Check]) -> str:
    """How many checks passed, failed, and could not be told."""
    counts = {kind: sum(check.passed is kind for check in checks) for kind in (True, False, None)}
    return f"{counts[True]} passed, {counts[False]} failed, {counts[None]} not known"


def case_table(results: Results[Case], case: Case) -> str:
    """The setups of one case, ratios to both peers first."""
    header = ["setup", f"examples/s ÷ {FIT}", f"examples/s ÷ {TORCH}", "examples/s"]
    header += ["GPU utilisation, %", "GPU memory, MiB", "AUC", "AUC on the CPU", "runs"]
    lines = []
    for setup in _rows(results, case):
        own, runs = (case, setup.name), results.runs[case, setup.name]
        ratios = [ratio(results.ratio(SPEED, own, (case, peer))) for peer in PEERS]
        lines.append(
            [
                setup.name,
                *(
                    "" if setup.mode == peer else each
                    for peer, each in zip(PEERS, ratios, strict=True)
                ),
                number(results.spread(case, setup.name, SPEED), 0),
                _utilization(list(runs.values())),
                _memory(list(runs.values())),
                _auc(results, case, setup.name),
                "" if setup.mode in PEERS else _auc(results, case.on_cpu, setup.on_cpu.name),
                str(len(runs)),
            ]
        )
    return markdown(header, lines)


def _rows(results: Results[Case], case: Case) -> list[Setup]:
    return [setup for setup in SETUPS if results.runs.get((case, setup.name))]


def _heading(results: Results[Case]) -> str:
    settings = dict(results.settings or {})
    lines = []
    if settings.pop("rehearse", False):
        lines.append("- **a rehearsal on the CPU: nothing here is of a GPU**")
    lines += [f"- {name}: {value}" for name, value in settings.pop("machine", {}).items()]
    lines.append("- " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    commits = {run.get("commit", "") for runs in results.runs.values() for run in runs.values()}
    lines.append(f"- tfps at {', '.join(sorted(commits))}")
    lines.append(
        "- medians of the runs, least and greatest in brackets; a ratio is of runs side by side in "
        "time"
    )
    return "\n".join(lines)


def _checked(checks: Sequence[Check]) -> str:
    """What failed or is not known, one by one; of what passed, how often."""
    lines = [f"{verdict(checks)}.", ""]
    lines += [f"- {check.sentence}" for check in checks if check.passed is False]
    lines += [f"- {check.sentence}" for check in checks if check.passed is None]
    by_kind: dict[str, list[Check]] = {}
    for check in checks:
        if check.passed:
            by_kind.setdefault(check.what, []).append(check)
    for what, passed in by_kind.items():
        last = passed[-1]
        lines.append(f"- passed ({len(passed)}): {what}; the last ({last.where}): {last.seen}")
    return "\n".join(lines)


def _where_time_goes(results: Results[Case]) -> list[str]:
    """The first trace of each setup and case."""
    parts = []
    for (case, name), runs in results.runs.items():
        profile = next((run["profile"] for run in runs.values() if "profile" in run), None)
        if profile and profile["is_told"]:
            text = "\n".join(profile["lines"])
            parts.append(f"### {case.name}: {name}\n\n```\n{text}\n```")
    return ["## Where a step's time goes", *parts] if parts else []


def _utilization(runs: Sequence[dict[str, Any]]) -> str:
    """Of each GPU, the spread of the windows' means; those that nobody used are left out."""
    told = []
    used = {index for run in runs for index in used_gpus(run["gpu"])}
    for index in sorted({index for run in runs for index in run["gpu"]["utilization"]}):
        values = [run["gpu"]["utilization"].get(index) for run in runs]
        known = [value for value in values if value is not None]
        if any(known) or (known and index in used):
            told.append(f"GPU {index}: {number(Spread.of(known), 0)}")
    return ", ".join(told) or "not told"


def _memory(runs: Sequence[dict[str, Any]]) -> str:
    """The most that each task held in any run, or all of them together."""
    most: dict[str, int] = {}
    for run in runs:
        for task, held in run["gpu"]["listed"].items():
            known = [memory for memory in held.values() if memory is not None]
            if known:
                most[task] = max(most.get(task, 0), *known)
    return ", ".join(f"{task} {memory:,}" for task, memory in sorted(most.items())) or "not told"


def _auc(results: Results[Case], case: Case, name: str) -> str:
    runs = results.runs.get((case, name), {}).values()
    found = [run["auc"] for run in runs if "auc" in run]
    return number(Spread.of(found), 4) if found else ""
