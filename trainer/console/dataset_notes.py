"""What is printed of a dataset's features once its records are counted."""

import sys

from tfps.data.manifest import Manifest
from tfps.data.schema import Schema, notes

_SHOWN = 20


def say_counts(dataset: Manifest, schema: Schema) -> None:
    """Writes to stdout which features some records lack, or hold something odd in."""
    found = notes(dataset.counts, dataset.records, schema.all)
    for note in found[:_SHOWN]:
        sys.stdout.write(f"{note}\n")
    if len(found) > _SHOWN:
        sys.stdout.write(f"… and {len(found) - _SHOWN} more features; trainer.inspect lists all\n")
