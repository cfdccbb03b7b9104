import itertools

import pytest

from tfps.data.record_source import RecordSource
from tfps.leases.lease import Lease, LeaseShare

BATCH = 8


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
@pytest.mark.parametrize(("first", "records"), [(0, 8), (16, 64), (8, 61), (0, 3), (0, 200)])
def test_the_shares_are_the_lease_and_nearly_equal(first, records, replicas):
    shares = LeaseShare.of(Lease(0, 0, RecordSource("x"), first, records, 1, BATCH), replicas)
    assert len(shares) == replicas
    assert shares[0].begin * BATCH == first
    assert all(one.end == following.begin for one, following in itertools.pairwise(shares))
    assert sum(share.records for share in shares) == records
    assert max(share.batches for share in shares) - min(share.batches for share in shares) <= 1
    # Only the last batch of all may be smaller.
    full = [share.records == share.batches * BATCH for share in shares]
    assert all(full[:-1])
    assert -(-records // BATCH) == sum(share.batches for share in shares)
