"""Workers that pull from one ps at the same time, while keys lose their rows to others."""

import threading

import keras
import numpy as np
import pytest

from tests.store.keyed.groups import Keyed

PULLS = 2_000  # that take rows from others, with two threads that look up beside


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_pull_never_gives_a_row_that_another_key_has_got_meanwhile():
    """Nothing is trained: so what is found of a key is its first row, or that of unknown keys."""
    keyed = Keyed(dim=16, max_rows=16, optimizer=keras.optimizers.SGD(0.0))
    keys = np.arange(12)
    rows = keyed.pull(keys).rows[0]
    is_over, wrong, found = threading.Event(), [], [0, 0]

    def look():
        while not is_over.is_set():
            pulled = keyed.pull(keys, is_training=False).rows[0]
            has_row = (pulled != 0).any(1)
            found[0] += has_row.sum()
            found[1] += (~has_row).sum()
            wrong.extend(keys[has_row & (pulled != rows).any(1)])

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for first in range(100, 100 + 8 * PULLS, 8):
            keyed.pull(range(first, first + 8))
            keyed.pull(keys[:6])
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert min(found) > 1_000
    assert keyed.counts()["evicted"] > 8 * PULLS
