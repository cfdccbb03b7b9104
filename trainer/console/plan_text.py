"""What `trainer.plan` prints, as lines."""

from collections.abc import Sequence

from tfps import byte_size
from tfps.job_dir.size import Size
from tfps.planner.bound_text import bound, sentence
from tfps.planner.cheapest import Offer, ps_bytes
from tfps.planner.measured_run import MeasuredRun
from trainer.console.text_table import named_texts, text_table

_SHOWN_OFFERS = 3


def measured(run: MeasuredRun) -> list[str]:
    """What the run took, and what bounded it."""
    costs, machines = run.costs, run.machines
    where = (
        f"one machine of {machines.worker.cpus:g} cores"
        if machines.are_one
        else f"machines of {machines.worker.cpus:g} cores for a worker, {machines.ps.cpus:g} for "
        "a ps"
    )
    rows = [
        (
            "measured",
            f"{run.config}, {run.size} in mode {run.mode} on {where}: "
            f"{run.examples_per_second:,.0f} examples/s",
        ),
        (
            "a step",
            f"of {costs.examples:,} examples: {1e3 * costs.worker_cpu:.1f} ms of CPU of its "
            f"worker, {1e3 * costs.ps_cpu:.1f} of the ps, {1e3 * costs.chief_cpu:.1f} of the "
            f"chief; {byte_size.show(costs.pulled_bytes)} pulled, "
            f"{byte_size.show(costs.pushed_bytes)} pushed",
        ),
        ("bound", sentence(run)),
    ]
    return named_texts(rows, 8)


def sizes(run: MeasuredRun, asked: Size) -> list[str]:
    """How fast other sizes are expected to be on machines as they were."""
    workers, ps = asked
    found = [
        asked,
        Size(workers + 1, ps),
        Size(2 * workers, ps),
        Size(workers, ps + 1),
        Size(2 * workers, 2 * ps),
    ]
    rows = []
    for size in dict.fromkeys(found):
        expected, off = run.forecast(size), run.may_be_off(size)
        rate = expected.examples_per_second
        rows.append(
            (
                f"{size.workers}",
                f"{size.ps}",
                f"{rate:,.0f}",
                _between(rate, off),
                f"{run.staleness_of(size):.1f}",
                byte_size.show(ps_bytes(run, size.ps)),
                bound(run, expected),
            )
        )
    header = ("workers", "ps", "examples/s", "between", "staleness", "a ps holds", "bounded by")
    return text_table(header, rows, right=range(6))


def offers(found: Sequence[Offer], run: MeasuredRun, wanted: float, records: int) -> list[str]:
    """The cheapest clusters of that speed, and the flags with which the first is submitted."""
    if not found:
        return [
            f"No cluster of these machines is expected to reach {wanted:,.0f} examples/s: give "
            "larger ones (--machines), or larger batches (--train.batch_size)."
        ]
    rows = []
    for offer in found[:_SHOWN_OFFERS]:
        rate = offer.forecast.examples_per_second
        hours = records / rate / 3600
        rows.append(
            (
                f"{offer.size.workers} {offer.worker.name}",
                f"{offer.size.ps} {offer.ps.name}",
                f"{rate:,.0f}",
                _between(rate, offer.off),
                f"{run.staleness_of(offer.size):.1f}",
                f"{offer.price:.2f}",
                f"{hours:,.3g}",
                f"{offer.price * hours:.2f}",
                bound(run, offer.forecast),
            )
        )
    header = (
        "workers", "ps", "examples/s", "between", "staleness", "an hour", "hours", "in all",
        "bounded by",
    )  # fmt: skip
    title = f"cheapest for {wanted:,.0f} examples/s, a machine for each task"
    return [title, *text_table(header, rows, right=range(2, 8)), "", *_command(found[0])]


def _between(rate: float, off: float) -> str:
    return f"{rate / (1 + off):,.0f} to {rate * (1 + off):,.0f}"


def _command(offer: Offer) -> list[str]:
    return [
        f"python -m cloud.submit --target=… --workers={offer.size.workers} --ps={offer.size.ps} \\",
        f"  --machine=chief:type={offer.chief.name} --machine=worker:type={offer.worker.name} \\",
        f"  --machine=ps:type={offer.ps.name} -- the job's own flags",
    ]
