"""Keys that come without end, through a table of few rows: memory stays as it is."""

import time

import numpy as np
import psutil
import pytest

from tests.store.keyed.groups import Keyed

KEYS, BATCH, MAX_ROWS = 2_000_000, 2_000, 20_000
# What may be added when a fifth of the keys have come: the index is made again again and again, by
# an allocator that gives back what it likes. A leak of one byte a key would be 1.6 MB, of a row
# with its slot, its record and its place, 230 MB.
TOLERANCE = 24 << 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("evict_first", ["least_recent", "least_frequent"])
def test_memory_stays_as_it_is_while_keys_come_without_end(evict_first: str) -> None:
    keyed = Keyed(dim=16, max_rows=MAX_ROWS, evict_first=evict_first)
    process = psutil.Process()
    seconds, resident, most_rows = [], [], 0
    for first in range(0, KEYS, BATCH):
        keys = np.arange(first, first + BATCH) * 0x9E3779B97F4A7C1
        began = time.monotonic()
        pull = keyed.pull(keys)
        seconds.append(time.monotonic() - began)
        keyed.push(pull)
        most_rows = max(most_rows, keyed.counts()["rows"])
        resident.append(process.memory_info().rss)
    counts = keyed.counts()
    later = resident[len(resident) // 5 :]
    print(
        f"{evict_first}: {np.median(seconds) * 1e3:.1f} ms a pull of {BATCH} new keys, at most "
        f"{max(seconds[1:]) * 1e3:.1f} ms; from {later[0] >> 20} MiB to {max(later) >> 20} MiB"
    )
    assert counts["admitted"] == KEYS
    assert counts["admitted"] - counts["evicted"] == counts["rows"]
    assert most_rows <= MAX_ROWS
    assert counts["refused"] == counts["dropped"] == 0
    assert max(later) - later[0] < TOLERANCE
    assert len(keyed.known()) == counts["rows"]
