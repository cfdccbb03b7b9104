"""The warning that a dataset's records are sorted."""

import sys

from tfps.data import record_order
from tfps.data.manifest import Manifest


def warn_of_sorted(dataset: Manifest, hint: str) -> None:
    """Writes to stderr if neighbouring records are alike; `hint` writes them in a drawn order."""
    if text := record_order.describe(dataset, hint):
        sys.stdout.flush()
        sys.stderr.write(f"warning: {dataset.directory}: {text}\n")
