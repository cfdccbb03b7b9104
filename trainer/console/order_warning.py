"""The warning that a dataset's records are sorted."""

import sys

from tfps.data import record_order
from tfps.data.manifest import Manifest


def warn_of_sorted(dataset: Manifest, mend: str) -> None:
    """Looks at a dataset, and writes to stderr if neighbouring records are alike.

    Args:
        dataset: Some of its records are read.
        mend: What writes them in a drawn order, such as `--shuffle=whole`.

    Raises:
        UserError: If a shard cannot be read.
    """
    text = record_order.describe(record_order.find_sorted(dataset), mend)
    if text:
        sys.stdout.flush()
        sys.stderr.write(f"warning: {dataset.directory}: {text}\n")
