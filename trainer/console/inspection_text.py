"""What `trainer.inspect` prints, as lines."""

import sys
from collections.abc import Sequence
from typing import Any

from tfps import byte_size
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.saved_values import Norms, TableSummary
from tfps.data import examples, record_order
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema, notes
from tfps.data.shards import Shard
from tfps.errors import listed
from trainer.console.text_table import named_texts, text_table
from trainer.datasets.shard_scan import ShardScan

_SHOWN = 20
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
_SHOWN_SHARDS = 40
_SHOWN_VALUES = 8
_SHOWN_CHARACTERS = 40


def warn_of_sorted(dataset: Manifest, hint: str) -> None:
    """Writes to stderr if neighbouring records are alike; `hint` writes them in a drawn order."""
    if text := record_order.describe(dataset, hint):
        sys.stdout.flush()
        sys.stderr.write(f"warning: {dataset.directory}: {text}\n")


def say_counts(dataset: Manifest, schema: Schema) -> None:
    """Writes to stdout which features some records lack, or hold something odd in."""
    found = notes(dataset.counts, dataset.records, schema.all)
    for note in found[:_SHOWN]:
        sys.stdout.write(f"{note}\n")
    if len(found) > _SHOWN:
        sys.stdout.write(f"… and {len(found) - _SHOWN} more features; trainer.inspect lists all\n")


def checkpoint_overview(checkpoint: Checkpoint) -> list[str]:
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
            f"{each.row.single} per row" if each.row.single else f"{each.row.whole}",
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


def overview(data: str, dataset: Manifest | None, shards: Sequence[Shard]) -> list[str]:
    """What the data is, in a few lines."""
    records, size = sum(s.records for s in shards), sum(s.bytes for s in shards)
    each = f", {size / records:,.0f} bytes a record" if records else ""
    kind = f"dataset {dataset.name}" if dataset else "TFRecord files without a manifest that fits"
    content = f"{records:,} in {counted(len(shards), 'shard')}, {byte_size.show(size)}{each}"
    rows = [("data", f"{data} ({kind})"), ("records", content)]
    if dataset and dataset.rejected_rows:
        rows.append(("left out", f"{counted(dataset.rejected_rows, 'bad row')} of the source"))
    if dataset and dataset.best_auc is not None:
        rows.append(("best AUC", f"{dataset.best_auc:.4f}, which the planted signal allows"))
    return named_texts(rows, 9)


def schema(dataset: Manifest) -> list[str]:
    """The features and labels that a manifest names."""
    rows = []
    for role, schemas in (("feature", dataset.features), ("label", dataset.labels)):
        for held in schemas:
            size = held["vocabulary_size"]
            ids = f"ids from 0 to {size - 1:,}" if size else ""
            shape = ", ".join("any" if n is None else str(n) for n in held["shape"])
            rows.append(
                (role, listed([held["name"]]), held["dtype"], f"[{shape}]" if shape else "", ids)
            )
    return ["", *text_table(("", "name", "dtype", "shape", "vocabulary"), rows)]


def schema_of(sample: Sequence[Any]) -> list[str]:
    """The features that some records hold."""
    held: dict[str, list[tuple[str, int]]] = {}
    for example in sample:
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            count = len(getattr(feature, kind).value) if kind else 0
            held.setdefault(name, []).append((examples.DTYPES.get(kind, "empty"), count))
    rows = []
    for name, found in sorted(held.items()):
        counts = [count for _, count in found]
        least, most = min(counts), max(counts)
        dtypes = sorted({dtype for dtype, _ in found if dtype != "empty"}) or ["empty"]
        values = f"{least}" if least == most else f"{least} to {most}"
        share = "" if len(found) == len(sample) else f"{len(found) / len(sample):.1%} of records"
        rows.append((listed([name]), " or ".join(dtypes), values, share))
    title = f"what the first {counted(len(sample), 'record')} hold"
    return ["", title, *text_table(("name", "dtype", "values", ""), rows)] if sample else []


def shard_table(scans: Sequence[ShardScan]) -> list[str]:
    rows = []
    for found in scans:
        shard = found.shard
        state = "good" if not found.damaged else f"{len(found.damaged)} DAMAGED"
        rows.append(
            (
                shard.file,
                f"{shard.records:,}",
                byte_size.show(shard.bytes),
                shard.compression.lower() or "none",
                shard.crc32c,
                state,
            )
        )
    more = len(rows) - _SHOWN_SHARDS
    # Damaged shards are what one looks for: they come first when not all are shown.
    shown = sorted(rows, key=lambda row: row[-1] == "good")[:_SHOWN_SHARDS] if more > 0 else rows
    header = ("shard", "records", "size", "compression", "crc32c", "records are")
    lines = text_table(header, shown, right=(1, 2))
    return [*lines, f"… and {counted(more, 'shard')} more"] if more > 0 else lines


def record(example: Any) -> list[str]:
    features = example.features.feature
    shown_names = {name: listed([name]) for name in sorted(features)}
    width = max(map(len, shown_names.values()), default=0)
    lines = []
    for name, shown_name in shown_names.items():
        kind = features[name].WhichOneof("kind")
        values = list(getattr(features[name], kind).value) if kind else []
        shown = ", ".join(map(_value, values[:_SHOWN_VALUES]))
        more = len(values) - _SHOWN_VALUES
        rest = f", … {more} more" if more > 0 else ""
        lines.append(f"  {shown_name:<{width}}  {shown or '(none)'}{rest}")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        text = repr(value.decode("utf-8", errors="replace"))
        return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return str(value)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
