import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.errors import UserError

IDS = np.array([4, 7, 4, 9, 2, 7, 7])
LOG_Q = np.log([0.3, 0.2, 0.3, 0.1, 0.05, 0.2, 0.2])


def vectors(seed, count=7, dim=3):
    return np.random.default_rng(seed).standard_normal([count, dim]).astype("f4")


def by_hand(users, items, ids, log_q, temperature, weights):
    """Record by record and item by item."""
    total = 0.0
    for user, own in enumerate(ids):
        logits = [
            np.dot(users[user], items[other]) / temperature - log_q[other]
            for other in range(len(ids))
            if other == user or ids[other] != own
        ]
        mine = np.dot(users[user], items[user]) / temperature - log_q[user]
        total += weights[user] * (np.log(np.sum(np.exp(logits))) - mine)
    return total / len(ids)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_it_is_the_corrected_softmax_without_accidental_hits(temperature):
    users, items, weights = vectors(0), vectors(1), np.arange(1.0, 8.0, dtype="f4")
    expected = by_hand(users, items, IDS, LOG_Q, temperature, weights)
    for shape in ([-1], [-1, 1]):
        columns = [np.reshape(each, shape) for each in (IDS, LOG_Q)]
        found = tfps.in_batch_softmax(
            users, items, *columns, temperature, np.reshape(weights, shape)
        )
        assert float(found) == pytest.approx(expected, rel=1e-5)
    plain = tfps.in_batch_softmax(users, items, IDS.astype(str), LOG_Q, temperature)
    same = by_hand(users, items, IDS, LOG_Q, temperature, np.ones(7))
    assert float(plain) == pytest.approx(same, rel=1e-5)


def test_only_differences_of_shares_matter():
    users, items = vectors(0), vectors(1)
    found = [float(tfps.in_batch_softmax(users, items, IDS, LOG_Q + add)) for add in (0.0, 3.0)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_record_alone_has_nothing_to_learn():
    own = [each[:1] for each in (vectors(0), vectors(1), IDS, LOG_Q)]
    assert float(tfps.in_batch_softmax(*own)) == 0.0


def test_an_item_that_is_met_twice_gets_no_gradient_from_its_own_users():
    users, items = vectors(0, count=2), tf.constant(vectors(1, count=2))
    with tf.GradientTape() as tape:
        tape.watch(items)
        loss = tfps.in_batch_softmax(users, items, [5, 5], [-1.0, -1.0])
    np.testing.assert_array_equal(tape.gradient(loss, items), np.zeros([2, 3]))


def test_what_is_no_vector_is_refused():
    with pytest.raises(UserError, match=r"users \(7, 3\) and items \(7, 2\)"):
        tfps.in_batch_softmax(vectors(0), vectors(1, dim=2), IDS, LOG_Q)
    with pytest.raises(UserError, match=r"temperature=0\.0 must be positive"):
        tfps.in_batch_softmax(vectors(0), vectors(1), IDS, LOG_Q, 0.0)
