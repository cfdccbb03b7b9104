"""Which keys lose their rows, and that nobody else does."""

import keras
import numpy as np
import pytest

from tests.store.keyed.groups import Keyed
from tfps.store.keyed import eviction
from tfps.store.keyed.row_records import rows_of


def train_each(keyed, keys, table=0):
    """One update for each key, so that each is more recent than the one before."""
    before = [[]] * table
    for key in keys:
        keyed.train(*before, [key])


def test_the_least_recent_go_first():
    keyed = Keyed(max_rows=40)
    train_each(keyed, range(40))
    keyed.train([0, 1])
    keyed.train([100])
    # One for the new key, and two, a twentieth, that others find free then.
    assert keyed.known() == {*range(40), 100} - {2, 3, 4}
    keyed.train([101, 102])
    assert keyed.known() == {*range(40), 100, 101, 102} - {2, 3, 4}
    assert keyed.counts() == {
        "rows": 40,
        "admitted": 43,
        "evicted": 3,
        "forgotten": 0,
        "refused": 0,
        "dropped": 0,
        # Of each row 8, and as much as is kept beside it.
        "bytes": 40 * (8 + keyed.layout.mark_bytes(8)),
    }


@pytest.mark.slow
def test_the_least_frequent_go_first():
    keyed = Keyed(max_rows=20, evict_first="least_frequent")
    for often in (3, 1, 2):
        for _ in range(often):
            keyed.train(np.arange(20)[often - 1 :: 3])
    keyed.train([100, 101])
    # Of those with one use the first rows.
    assert keyed.known() == {*range(20), 100, 101} - {0, 3, 6}


@pytest.mark.slow
@pytest.mark.parametrize("evict_first", ["least_recent", "least_frequent"])
def test_of_equals_those_go_after_all_that_are_less(evict_first):
    """The first rows have what the limit is, and are more than are to go."""
    keyed = Keyed(max_rows=10, evict_first=evict_first)
    keyed.train(range(10))
    keyed.train(range(8))
    keyed.train([100, 101])  # two, and one more
    gone = set(range(10)) - keyed.known()
    assert {8, 9} < gone
    assert len(gone) == 3


@pytest.mark.slow
@pytest.mark.parametrize("evict_first", ["least_recent", "least_frequent"])
def test_new_keys_have_rows_wherever_those_lie_that_are_used_least(monkeypatch, evict_first):
    """Of very many rows a sample is looked at, and few slices: here as with 16 times 65,536."""
    for name in ("SLICE_ROWS", "_SAMPLE"):
        monkeypatch.setattr(eviction, name, 64)
    keyed = Keyed(max_rows=1_000, evict_first=evict_first)
    for first in range(0, 5_000, 40):
        keyed.train([*range(first, first + 40), -1, -2])
    counts = keyed.counts()
    assert counts["refused"] == counts["dropped"] == 0
    assert counts["admitted"] == 5_002
    assert counts["rows"] == counts["admitted"] - counts["evicted"] > 850
    assert {-1, -2} < keyed.known()
    if evict_first == "least_recent":
        assert set(range(4_400, 5_000)) < keyed.known()


@pytest.mark.slow
@pytest.mark.parametrize("evict_first", ["least_recent", "least_frequent"])
def test_a_small_table_makes_room_beside_a_large_one(monkeypatch, evict_first):
    """Though a sample of all rows may have none of its own, others the next time will."""
    for name in ("SLICE_ROWS", "_SAMPLE"):
        monkeypatch.setattr(eviction, name, 64)
    keyed = Keyed(1, ("large", "small"), rows=(4_000, 20), max_rows=4_000, evict_first=evict_first)
    keyed.train(range(10))
    keyed.train([], range(20))
    keyed.train(range(10, 3_000))
    refused = []
    for key in range(100, 200):
        keyed.train([], [key])
        refused.append(keyed.counts(1)["refused"])
    # Every 47th row is looked at, and others the next time: so twenty are hit within 28 times.
    runs = np.diff(np.flatnonzero(np.diff([0, *refused]) == 0), prepend=-1)
    assert runs.max() <= 28
    assert keyed.counts(1)["admitted"] == 120 - refused[-1]
    assert keyed.counts(0)["evicted"] == keyed.counts(0)["refused"] == 0


@pytest.mark.slow
def test_a_late_update_does_not_make_a_row_less_recent():
    keyed = Keyed(max_rows=10)
    old = keyed.pull([0])
    train_each(keyed, range(10))
    keyed.train([0])
    keyed.push(old, step=0)
    keyed.train([100])
    assert 0 in keyed.known()
    assert 1 not in keyed.known()


@pytest.mark.slow
def test_tables_of_one_group_do_not_take_each_others_rows():
    keyed = Keyed(1, ("a", "b"), max_rows=50)
    train_each(keyed, range(50))
    train_each(keyed, range(30), table=1)
    for key in range(1000, 1200, 10):
        keyed.train([], range(key, key + 10))
    assert keyed.known(0) == set(range(50))
    assert 40 <= len(keyed.known(1)) <= 50
    assert keyed.counts(0)["evicted"] == 0
    of_second = keyed.counts(1)
    assert of_second["admitted"] - of_second["evicted"] == of_second["rows"] == len(keyed.known(1))
    assert of_second["admitted"] == 230
    assert of_second["refused"] == 0


@pytest.mark.slow
def test_tables_that_had_too_few_rows_make_room_together():
    keyed = Keyed(1, ("a", "b"), max_rows=50)  # of which a twentieth is two
    for table in (0, 1):
        train_each(keyed, range(51), table=table)
        assert keyed.counts(table)["rows"] == 48
    train_each(keyed, [60], table=1)
    assert keyed.counts(1)["rows"] == 49
    train_each(keyed, [60, 61, 62])
    assert [keyed.counts(table)["rows"] for table in (0, 1)] == [48, 48]
    assert keyed.counts(1)["evicted"] == 4


@pytest.mark.quick("True")
@pytest.mark.parametrize("filled", [False, True])
def test_more_keys_in_one_batch_than_there_may_be_rows(filled):
    keyed = Keyed(1, ("a", "b"), max_rows=20)
    if filled:
        keyed.train(range(1000, 1020), range(7))
    rows = keyed.pull(range(33), [5]).rows
    assert keyed.counts(0)["rows"] == 20
    assert keyed.counts(0)["refused"] == 13
    is_zero = (rows[0] == 0).all(1)
    assert is_zero.sum() == 13
    assert keyed.known(0) == set(np.arange(33)[~is_zero].tolist())
    assert keyed.counts(1)["rows"] == (7 if filled else 1)


@pytest.mark.slow
def test_keys_of_a_batch_whose_rows_made_room_have_none():
    """What a pull answers is what is there then, whoever lost a row for its own other keys."""
    keyed = Keyed(max_rows=20)
    keyed.train(range(20))
    pull = keyed.pull(range(10, 40))
    known = keyed.known()
    owned = pull.pulled.owned[0].numpy()
    has_row = rows_of(owned).numpy() >= 1
    asked = np.arange(10, 40)
    assert {int(key) for key, has in zip(asked, has_row, strict=True) if has} == known
    assert len(np.unique(owned[has_row])) == has_row.sum()
    assert (pull.rows[0][~has_row] == 0).all()
    keyed.push(pull)
    assert keyed.counts()["dropped"] == 30 - len(known)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
def test_new_keys_are_refused_and_counted_where_nothing_is_evicted(parts):
    keyed = Keyed(parts, max_rows=30, evict_first="none")
    for _ in range(2):
        pull = keyed.train(range(100))
    counts = keyed.counts()
    known = keyed.known()
    assert counts["rows"] == counts["admitted"] == len(known) == 30
    assert counts["refused"] == counts["dropped"] == 2 * 70
    assert counts["evicted"] == counts["forgotten"] == 0
    assert (pull.rows[0] != 0).all(1).sum() == 30
    keyed.pull(range(100), is_training=False)
    assert keyed.counts() == counts


@pytest.mark.slow
def test_what_did_not_occur_for_long_is_forgotten():
    keyed = Keyed(2, ("a", "b"), forget_after=10)
    train_each(keyed, range(10))
    keyed.train([3], [3, 4])
    keyed.group.forget(5)  # the update whose number is 4 was the last of key 4
    assert keyed.known(0) == {3, 4, 5, 6, 7, 8, 9}
    assert keyed.known(1) == {3, 4}
    assert keyed.counts(0)["forgotten"] == 3
    keyed.group.forget(1_000)
    assert keyed.known(0) == keyed.known(1) == set()
    assert [keyed.counts(k)["forgotten"] for k in (0, 1)] == [10, 2]
    keyed.group.forget(1_000)
    assert keyed.counts(0)["forgotten"] == 10


def test_keys_that_were_forgotten_come_back_as_new_ones():
    keyed = Keyed(forget_after=10)
    first = keyed.train(range(20)).rows
    keyed.group.forget(1_000)
    again = keyed.pull(range(19, -1, -1)).rows[0][::-1]
    np.testing.assert_array_equal(again, first[0])


@pytest.mark.slow
def test_trained_rows_with_a_small_norm_are_forgotten():
    keyed = Keyed(initializer=keras.initializers.Ones(), min_norm=0.5)
    keyed.train([1], gradient=1.0)  # 0, 0
    keyed.train([2], gradient=0.7)  # 0.3, 0.3: 0.42
    keyed.train([3], gradient=0.6)  # 0.4, 0.4: 0.57
    keyed.train([4], gradient=2.0)  # -1, -1
    small = Keyed(initializer=keras.initializers.Zeros(), min_norm=0.5)
    small.pull([5])  # was not trained
    small.train([6], gradient=0.0)
    for each in (keyed, small):
        each.group.forget(0)
    assert keyed.known() == {3, 4}
    assert keyed.counts()["forgotten"] == 2
    assert small.known() == {5}


@pytest.mark.slow
def test_a_late_gradient_of_a_row_that_another_key_has_changes_nothing():
    keyed = Keyed(max_rows=4)
    late = keyed.pull(range(4))
    keyed.train(range(10, 14))
    assert keyed.known() == set(range(10, 14))
    before = keyed.saved()
    keyed.push(late, 100.0)
    for now, then in zip(keyed.saved(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert keyed.counts()["dropped"] == 4


@pytest.mark.slow
def test_gradients_are_counted_that_come_after_all_keys_have_lost_their_rows():
    keyed = Keyed(2, ("a", "b"), max_rows=100)
    late = keyed.pull(range(30), range(20))
    saved = keyed.saved()
    keyed.restore(saved)
    keyed.push(late, 100.0)
    assert [keyed.counts(table)["dropped"] for table in (0, 1)] == [30, 20]
    for now, then in zip(keyed.saved(), saved, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.slow
def test_rows_that_were_lost_since_they_were_pulled_are_of_no_table():
    keyed = Keyed(1, ("a", "b"), max_rows=4, admit_after=2)
    keyed.train(range(4), range(2))
    keyed.train(range(4), range(2))
    pulled = keyed.pull(range(4), range(4)).pulled  # two keys of the second have occurred once
    [owned] = pulled.owned
    np.testing.assert_array_equal(keyed.group.tables_in_part(0, owned), pulled.tables)
    for _ in range(2):
        keyed.train(range(10, 14))
    tables = keyed.group.tables_in_part(0, owned).numpy().tolist()
    assert tables == [-1] * 4 + [1] * 4


@pytest.mark.slow
def test_rows_are_told_apart_as_well_when_generations_begin_again():
    keyed = Keyed(max_rows=4)
    last = (1 << 22) - 1
    keyed.group._parts[0]._free._generation.assign(last - 3)
    late, seen = [], []
    for first in range(0, 24, 4):
        late.append(keyed.train(range(first, first + 4)))
        seen.append(int(keyed.group._parts[0]._free._generation))
        assert keyed.known() == set(range(first, first + 4))
    assert seen == [last - 2, last - 1, last, 1, 2, 3]
    before = keyed.saved()
    np.testing.assert_array_equal(before.records[:, 2], np.ones(4))
    for pull in late[:-1]:
        keyed.push(pull, 100.0)
    for now, then in zip(keyed.saved(), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["zeros", "mean"])
def test_rows_of_unknown_keys_never_change(unknown):
    keyed = Keyed(
        2,
        ("a", "b"),
        initializer=keras.initializers.RandomUniform(1.0, 3.0),
        max_rows=4,
        evict_first="none",
        unknown=unknown,
    )
    for _ in range(3):
        keyed.train(range(50), range(50))
    rows = keyed.pull(range(100, 110), range(100, 110), is_training=False).rows
    np.testing.assert_array_equal(rows, np.full_like(rows, 2.0 if unknown == "mean" else 0.0))


@pytest.mark.slow
def test_keys_are_admitted_when_they_have_occurred_often_enough():
    keyed = Keyed(admit_after=3)
    keyed.train([1, 1, 2])
    assert keyed.known() == set()
    assert keyed.counts()["dropped"] == 2
    keyed.pull([1, 1, 2], is_training=False)
    keyed.train([2])
    assert keyed.known() == set()
    pull = keyed.train([1, 3, 3, 3, 3])
    assert keyed.known() == {1, 3}
    assert (pull.rows[0] != 0).all()
    keyed.train([2])
    assert keyed.known() == {1, 2, 3}
    assert keyed.counts()["admitted"] == 3


@pytest.mark.slow
def test_more_saved_rows_than_a_table_may_have_leave_room_for_the_others():
    """As a table's max_rows was made smaller; what does not fit is refused, and nothing breaks."""
    large = Keyed(1, ("a", "b"), max_rows=300, evict_first="none")
    large.train(range(300))
    small = Keyed(1, ("a", "b"), max_rows=100, evict_first="none")
    small.restore(large.saved())
    assert small.known(0) == set(range(300))
    small.train([5, 1000], range(100))
    assert small.known(0) == set(range(300))
    of_second = small.counts(1)
    assert small.known(1) < set(range(100))
    assert of_second["rows"] == len(small.known(1)) == small.layout.capacity - 2 - 300
    assert of_second["refused"] == 100 - of_second["rows"]


@pytest.mark.slow
def test_tables_that_have_too_many_rows_lose_those_used_least():
    large = Keyed(1, max_rows=300)
    train_each(large, range(150))
    small = Keyed(1, max_rows=100)
    small.steps.assign(150)
    small.restore(large.saved())
    small.train([1000])
    # To 100, and five more.
    assert small.known() == {*range(56, 150), 1000}
    assert small.counts()["evicted"] == 56


@pytest.mark.slow
def test_lost_rows_are_given_out_again():
    keyed = Keyed(1, ("a", "b"), max_rows=50)
    for first in range(0, 5_000, 25):
        keyed.train(range(first, first + 25), [first])
    used = int(keyed.group._parts[0]._free.used)
    assert used <= keyed.layout.capacity
    assert used - 2 <= 100
    saved = keyed.saved()
    assert (
        len(np.unique(saved.hashes))
        == len(saved.hashes)
        == sum(keyed.counts(k)["rows"] for k in (0, 1))
    )
