"""What `trainer.inspect` prints of a checkpoint, as lines."""

from collections.abc import Sequence

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.saved_values import Norms, TableSummary
from tfps.store.stored_row import StoredRow
from trainer.console.text_table import named_texts, text_table

_HEADER = (
    "table",
    "rows",
    "dim",
    "dtype",
    "slots",
    "last updates",
    "norms: least",
    "median",
    "greatest",
)


def overview(checkpoint: Checkpoint) -> list[str]:
    """What the checkpoint is, in a few lines."""
    kind = f"an increment of {checkpoint.base.name}" if checkpoint.increment else "a full one"
    rows = [
        ("checkpoint", f"{checkpoint.path} ({kind})"),
        ("updates", f"{checkpoint.steps:,}"),
        ("size", f"{checkpoint.size:,} bytes"),
    ]
    return named_texts(rows, 10)


def tables(found: Sequence[TableSummary]) -> list[str]:
    """One line per table, and one for each of the keys that are used most."""
    rows = [
        (
            each.name,
            f"{each.norms.count:,}",
            f"{each.row.dim}",
            each.row.dtype,
            _slots(each.row),
            _last_updates(each),
            *_norms(each.norms),
        )
        for each in found
    ]
    lines = ["", *text_table(_HEADER, rows, right=range(1, len(_HEADER)))]
    for each in found:
        if each.most_used:
            lines += ["", f"keys of {each.name} whose rows most updates changed", *_keys(each)]
    if any(each.most_used for each in found):
        lines += ["", "of a table of strings, a key is the 63-bit fingerprint of the string"]
    return lines


def _slots(row: StoredRow) -> str:
    return f"{row.single} per row" if row.single else f"{row.whole}"


def _last_updates(table: TableSummary) -> str:
    if table.last_updates is None:
        return "not kept" if not table.has_keys else "none"
    least, greatest = table.last_updates
    return f"{least:,} to {greatest:,}"


def _norms(norms: Norms) -> tuple[str, str, str]:
    if not norms.count:
        return "", "", ""
    return f"{norms.least:.4g}", f"{norms.median:.4g}", f"{norms.greatest:.4g}"


def _keys(table: TableSummary) -> list[str]:
    rows = [
        (f"{used.key}", f"{used.uses:,}", f"{used.last_update:,}", f"{used.norm:.4g}")
        for used in table.most_used
    ]
    return text_table(("key", "updates", "last update", "norm"), rows, right=(0, 1, 2, 3))
