"""The results as markdown."""

from collections.abc import Sequence
from typing import Any

from benchmarks.cases import STEP, SWEEPS, WIRE, Case, Sweep
from benchmarks.models import table_rows
from benchmarks.results import CPU, Results, Spread

SPEED = "examples_per_second"
BYTES = "loopback_bytes_per_example"
CHIEF = "chief_share"


def report(results: Results, reference: str) -> str:
    """All tables.

    Args:
        results: What was measured.
        reference: The system whose figures are divided by those of each other one.
    """
    parts = [_heading(results)]
    for case in results.cases():
        parts.append(f"### {title(case)}\n\n{case_table(results, case, reference)}")
        parts += floor_line(results, case, reference)
    for sweep in SWEEPS.values():
        if sum(case in results.cases() for case in sweep.cases) > 1 and compares(results, sweep):
            parts.append(f"### {sweep.title}\n\n{sweep_table(results, sweep)}")
    return "\n\n".join([*parts, disturbance(results)]) + "\n"


def title(case: Case) -> str:
    """A case for a heading."""
    rows = f"{case.rows:,} rows per table, " if case.rows else ""
    if case.model == "dlrm":
        rows = f"{sum(table_rows(case.model, case.rows)):,} rows, "
    return f"{case.model}, {rows}batch {case.batch:,}, {case.optimizer.capitalize()}"


def case_table(results: Results, case: Case, reference: str) -> str:
    """The systems of one case, the reference first."""
    systems = sorted(results.systems(case), key=lambda system: system != reference)
    divided = reference in systems and len(systems) > 1
    header = ["system", f"{reference} ÷ it: examples/s", f"{reference} ÷ it: CPU"]
    if not divided:
        header = header[:1]
    header += ["examples/s", "CPU-s per million examples", "wire bytes per example"]
    header += ["chief's share of CPU", "peak memory, MB", "runs"]
    lines = []
    for system in systems:
        own, first = (case, system), (case, reference)
        ratios = [ratio(results.ratio(figure, first, own)) for figure in (SPEED, CPU)]
        runs = results.runs[own].values()
        chief = results.spread(case, system, CHIEF).median
        lines.append(
            [
                system,
                *((ratios if system != reference else ["", ""]) if divided else []),
                number(results.spread(case, system, SPEED), 0),
                number(results.spread(case, system, CPU), 1),
                number(results.spread(case, system, BYTES), 0),
                f"{chief:.1%}" if 0 < chief < 1 else "",
                peaks(runs),
                str(len(runs)),
            ]
        )
    return markdown(header, lines)


def floor_line(results: Results, case: Case, reference: str) -> list[str]:
    """What a cluster needs at least beside what the reference does; nothing if not measured."""
    floor = results.floor(case)
    mine = results.runs.get((case, reference), {})
    ratios = [mine[run][CPU] / least for run, least in floor.items() if run in mine]
    if not ratios:
        return []
    least = number(Spread.of(list(floor.values())), 1)
    return [
        f"The floor, the step of `{STEP}` and the bytes of `{WIRE}`: {least} CPU-s per million "
        f"examples. {reference} takes {number(Spread.of(ratios), 2)} times as much."
    ]


def compares(results: Results, sweep: Sweep) -> bool:
    """Whether two systems of a sweep were measured on some case of it: others have it, too."""
    measured = (
        set(results.systems(case)) & set(sweep.cases[case])
        for case in results.cases()
        if case in sweep.cases
    )
    return any(len(systems) > 1 for systems in measured)


def sweep_table(results: Results, sweep: Sweep) -> str:
    """Medians by the swept field; if that is a number, also relative to the system's first."""
    cases = [case for case in sweep.cases if case in results.cases()]
    systems = dict.fromkeys(system for case in cases for system in results.systems(case))
    header = ["system", "figure", *(f"{_value(getattr(case, sweep.field))}" for case in cases)]
    lines = []
    for system in systems:
        measured = [case for case in cases if (case, system) in results.runs]
        if len(measured) < 2:
            continue
        for name, figure, digits in (("examples/s", SPEED, 0), ("CPU-s per million", CPU, 1)):
            cells = []
            for case in cases:
                if case not in measured:
                    cells.append("")
                    continue
                median = results.spread(case, system, figure).median
                ratio = results.ratio(figure, (case, system), (measured[0], system))
                compares = ratio and case != measured[0] and not sweep.is_named
                relative = f" ({ratio.median:.2f}×)" if compares else ""  # noqa: RUF001
                cells.append(f"{median:,.{digits}f}{relative}")
            lines.append([system, name, *cells])
    return markdown(header, lines)


def disturbance(results: Results) -> str:
    """How much of the machine others used in the windows."""
    worst = 0.0
    for runs in results.runs.values():
        worst = max(worst, *(run["others_cores"] + run["stolen_cores"] for run in runs.values()))
    return f"Cores that others used in the worst window: {worst:.2f}."


def _heading(results: Results) -> str:
    settings = dict(results.settings or {})
    machine = settings.pop("machine", {})
    commits = {run["commit"] for runs in results.runs.values() for run in runs.values()}
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    lines.append("- " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    lines.append(f"- tfps at {', '.join(sorted(commits))}")
    lines.append("- medians of the runs, least and greatest in brackets; a ratio is of runs side")
    return "\n".join(lines) + "\n  by side in time"


def peaks(runs: Any) -> str:
    """The most of any run, by role."""
    peaks: dict[str, int] = {}
    for run in runs:
        for role, megabytes in run["peak_megabytes"].items():
            peaks[role] = max(peaks.get(role, 0), megabytes)
    return ", ".join(f"{role} {peaks[role]:,}" for role in sorted(peaks) if role != "launcher")


def ratio(found: Spread | None) -> str:
    return number(found, 2) if found else ""


def number(spread: Spread, digits: int) -> str:
    """The median, with least and greatest in brackets."""
    numbers = (f"{each:,.{digits}f}" for each in (spread.median, spread.least, spread.greatest))
    return "{} ({}–{})".format(*numbers)  # noqa: RUF001 - a range


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table whose first column is of text, the others of numbers."""
    rule = ["---"] + ["--:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))
