import itertools

import pytest

from tfps.data.record_source import RecordSource
from tfps.leases.lease import Lease, LeasePart

BATCH = 8


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
@pytest.mark.parametrize(("first", "records"), [(0, 8), (16, 64), (8, 61), (0, 3), (0, 200)])
def test_the_parts_are_the_lease_and_nearly_equal(first, records, replicas):
    parts = LeasePart.of(Lease(0, 0, RecordSource("x"), first, records, 1, BATCH), replicas)
    assert len(parts) == replicas
    assert parts[0].begin * BATCH == first
    assert all(one.end == following.begin for one, following in itertools.pairwise(parts))
    assert sum(part.records for part in parts) == records
    assert max(part.batches for part in parts) - min(part.batches for part in parts) <= 1
    # Only the last batch of all may be smaller.
    full = [part.records == part.batches * BATCH for part in parts]
    assert all(full[:-1])
    assert -(-records // BATCH) == sum(part.batches for part in parts)
