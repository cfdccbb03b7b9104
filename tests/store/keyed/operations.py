"""Random operations in any order on a group of tables, beside a reference in plain Python."""

import collections
import functools

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import stateful
from hypothesis import strategies as st

from tests.store.keyed.groups import Keyed
from tests.store.keyed.reference import EPSILON, RATE, START, Reference
from tfps.store.initializers import InitialRows
from tfps.store.keyed import key_index
from tfps.store.keyed_layout import hashes_of_array, keys_of_array

TABLES = ("a", "b")
MAX_ROWS, DIM, SEED = 24, 2, 5
UNIVERSE = [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1, *range(1, 3500, 77)]
OPTIONS = {
    "least recent": {},
    "least frequent": {"evict_first": "least_frequent"},
    "none": {"evict_first": "none"},
    "forgotten alone": {"evict_first": "none", "forget_after": 1},
    "admitted late": {"admit_after": 3},
}
# So that the index of so few keys becomes full again and again, and they are moved.
FEW_BUCKETS = {"_LEAST_BUCKETS": 16, "_MOVED_AT_LEAST": 8}
KEYS = st.lists(st.sampled_from(UNIVERSE), max_size=20)
SEEDS = st.integers(0, 2**32 - 1)


class Groups:
    """Groups of one kind, whose graphs are made once.

    Whoever uses one takes the rows from all keys first.
    """

    def __init__(self, kind):
        self._options, self._made = OPTIONS[kind], {}

    def on(self, parts):
        """The one on so many parts."""
        if parts not in self._made:
            optimizer = keras.optimizers.Adagrad(RATE, START, epsilon=EPSILON)
            more = {"optimizer": optimizer, "max_rows": MAX_ROWS, **self._options}
            self._made[parts] = Keyed(parts, TABLES, DIM, SEED, **more)
        return self._made[parts]

    @functools.cached_property
    def initial_rows(self):
        """By table and key, what each has to begin with."""
        keys = np.array(UNIVERSE, np.int64)
        layout = self.on(1).layout
        rows = {}
        for table, salt in enumerate(layout.salts):
            hashes = tf.constant(hashes_of_array(keys, salt))
            tables = tf.fill([len(keys)], table)
            drawn = InitialRows(layout.tables, SEED).draw(hashes, tables).numpy()
            rows |= {(table, key): row for key, row in zip(UNIVERSE, drawn, strict=True)}
        return rows


class Operations(stateful.RuleBasedStateMachine):
    """One group after the other, on any number of parts.

    Attributes:
        groups: Those that it may use.
        parts: How many there may be.
        made: The number of operations, by all of these.
    """

    groups: Groups
    parts: tuple[int, ...]
    made: collections.Counter

    def __init__(self):
        super().__init__()
        self.keyed = self.groups.on(1)
        self.keyed.group.clear()
        self.keyed.steps.assign(0)
        self.reference = Reference(self.keyed.layout, self.groups.initial_rows)
        self.reference.begin(self.keyed.layout, self._part_of())
        self.before = self._counts()
        self.has_begun = False
        self.pulls = []  # group, pull, and whose each row was

    @stateful.invariant()
    def count(self):
        """What is called after each operation, and before the first."""
        self.made["operations"] += bool(self.has_begun)
        self.has_begun = True

    @stateful.rule(first=KEYS, second=KEYS)
    def pull_for_training(self, first, second):
        pull = self.keyed.pull(first, second)
        asked = collections.Counter([(0, key) for key in first] + [(1, key) for key in second])
        self.reference.pull(asked, int(self.keyed.steps), self._known())
        self._check_rows(pull, first, second)
        owners = {
            each: self.reference.rows[each].owner if each in self.reference.rows else None
            for each in asked
        }
        self.pulls.append((self.keyed, pull, owners))

    @stateful.rule(first=KEYS, second=KEYS)
    def pull_without_training(self, first, second):
        known = self._known()
        self._check_rows(self.keyed.pull(first, second, is_training=False), first, second)
        assert self._known() == known

    @stateful.precondition(lambda self: self._mine())
    @stateful.rule(which=SEEDS, seed=SEEDS, is_late=st.booleans())
    def push(self, which, seed, is_late):
        """The newest pull or any before, also one from before all rows were taken away."""
        mine = self._mine()
        one = mine[which % len(mine)] if is_late else mine[-1]
        self.pulls = [each for each in self.pulls if each is not one]
        keyed, pull, owners = one
        gradients = np.random.default_rng(seed).normal(size=(len(owners), DIM)).astype("f4")
        step = int(keyed.steps)
        keyed.push(pull, gradients)
        self.reference.push(owners, dict(zip(owners, gradients, strict=True)), step)

    @stateful.precondition(lambda self: self.keyed.options.loses_rows)
    @stateful.rule(updates=st.integers(0, 4))
    def forget(self, updates):
        least = int(self.keyed.steps) - updates
        self.keyed.group.forget(least)
        self.reference.forget(least)

    @stateful.rule()
    def save(self):
        """Every row is as the reference's, and has one owner."""
        saved = self.keyed.saved()
        hashes = saved.hashes
        assert (hashes[1:] > hashes[:-1]).all()
        found = dict.fromkeys(self._owners_of(saved))
        assert len(found) == len(hashes)
        assert found.keys() == self.reference.rows.keys()
        rows = [self.reference.rows[each] for each in found]
        records = [[each[0], row.last, row.uses] for each, row in zip(found, rows, strict=True)]
        assert saved.records.tolist() == records
        lines = np.reshape([[row.values, row.accumulator] for row in rows], [-1, 2, DIM])
        np.testing.assert_allclose(saved.lines, lines, atol=1e-6, rtol=1e-6)
        for part in range(self.keyed.layout.parts):
            _, rows = self.keyed.group.in_order(part)
            assert len(set(rows.numpy().tolist())) == len(rows)

    @stateful.rule(which=SEEDS)
    def restore(self, which):
        """What is saved continues on another number of parts, or on the same."""
        self._check_counts()
        saved, steps = self.keyed.saved(), int(self.keyed.steps)
        self.keyed = self.groups.on(self.parts[which % len(self.parts)])
        self.keyed.restore(saved)
        self.keyed.steps.assign(steps)
        self.reference.begin(self.keyed.layout, self._part_of())
        self.before = self._counts()
        for counts in self.reference.counts:
            counts.update(dict.fromkeys(counts, 0))
        self.save()

    def teardown(self):
        self.save()
        self._check_counts()

    def _mine(self):
        return [each for each in self.pulls if each[0] is self.keyed]

    def _part_of(self):
        layout, parts = self.keyed.layout, {}
        for table, salt in enumerate(layout.salts):
            owners = layout.part_of_hashes(hashes_of_array(np.array(UNIVERSE, np.int64), salt))
            parts |= {(table, key): int(part) for key, part in zip(UNIVERSE, owners, strict=True)}
        return parts

    def _owners_of(self, saved):
        """Tables and keys of rows, in their order."""
        tables = saved.records[:, 0].tolist()
        by_table = [keys_of_array(saved.hashes, salt).tolist() for salt in self.keyed.layout.salts]
        return [(table, by_table[table][k]) for k, table in enumerate(tables)]

    def _known(self):
        return set(self._owners_of(self.keyed.saved()))

    def _check_rows(self, pull, first, second):
        asked = [(0, key) for key in first] + [(1, key) for key in second]
        found = tf.gather(pull.pulled.rows, pull.pulled.inverse)
        known = [self.reference.rows.get(each) for each in asked]
        expected = [np.zeros(DIM) if row is None else row.values for row in known]
        expected = np.reshape(expected, [-1, DIM])
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=str(asked))

    def _counts(self):
        return [self.keyed.counts(table) for table in range(len(TABLES))]

    def _check_counts(self):
        for table, (now, then) in enumerate(zip(self._counts(), self.before, strict=True)):
            assert now["rows"] == sum(each[0] == table for each in self.reference.rows)
            for name, count in self.reference.counts[table].items():
                if name != "dropped":
                    assert now[name] - then[name] == count, (TABLES[table], name)
        # A lost row does not tell whose gradient came late.
        dropped = sum(each["dropped"] for each in self._counts())
        dropped -= sum(each["dropped"] for each in self.before)
        assert dropped == sum(each["dropped"] for each in self.reference.counts)


def operate(kind, parts, operations, steps, made):
    """Makes operations on new groups of a kind, and compares; some more than asked for.

    Args:
        kind: Of `OPTIONS`.
        parts: How many there may be.
        operations: How many at least.
        steps: After so many all begins again.
        made: Counts them.

    Raises:
        AssertionError: If a group is not as the reference.
    """
    own = {"groups": Groups(kind), "parts": parts, "made": made}
    machine = type("Operations", (Operations,), own)
    settings = hypothesis.settings(
        # Half as many again and more, since hypothesis ends many before the last step.
        max_examples=operations * 8 // (5 * steps) + 1,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[hypothesis.Phase.generate],  # to shrink what fails would run for very long
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, number in FEW_BUCKETS.items():
            patch.setattr(key_index, name, number)
        stateful.run_state_machine_as_test(machine, settings=settings)
