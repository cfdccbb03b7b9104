"""What is asked for arrives as it was asked."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.store.keyed.part import AskedKeys, KeyMessage

EXTREMES = [-(2**63), -1, 0, 2**63 - 1]


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("tables", [1, 2, 26, 32_767])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1001])
def test_keys_arrive_as_they_were_asked_for(count, tables, counts):
    draw = np.random.default_rng(count)
    hashes = np.resize(np.array(EXTREMES, np.int64), count)
    of_tables = np.resize([tables - 1, *draw.integers(0, tables, 6)], count)
    occurrences = np.resize([2**31 - 1, 1, 7], count)
    form = KeyMessage(tables, counts)
    asked = AskedKeys(
        tf.constant(hashes, tf.int64),
        tf.constant(of_tables, tf.int32),
        tf.constant(occurrences, tf.int32),
    )

    @tf.function(
        input_signature=[AskedKeys(*(tf.TensorSpec([None], each.dtype) for each in asked))]
    )
    def sent(keys):
        message = form.write(keys)
        assert message.dtype == tf.int64
        return message, form.read(message)

    message, arrived = sent(asked)
    np.testing.assert_array_equal(arrived.hashes, hashes)
    np.testing.assert_array_equal(arrived.tables, of_tables)
    np.testing.assert_array_equal(arrived.occurrences, occurrences if counts else np.ones(count))
    of_tables = 1 + -(-count // 4) if tables > 1 else 0
    assert message.shape == [count * (1 + counts) + of_tables]
