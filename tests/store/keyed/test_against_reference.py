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
from tfps.store.keyed.hashing import hashes_of_array, keys_of_array
from tfps.store.keyed.initial_rows import InitialRows

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
KEYS = st.lists(st.sampled_from(UNIVERSE), max_size=20)
SEEDS = st.integers(0, 2**32 - 1)


@functools.cache
def keyed_of(kind, parts):
    """Graphs are made once; whoever uses it takes the rows from all keys first."""
    return Keyed(
        parts,
        TABLES,
        DIM,
        SEED,
        optimizer=keras.optimizers.Adagrad(RATE, START, epsilon=EPSILON),
        max_rows=MAX_ROWS,
        **OPTIONS[kind],
    )


@functools.cache
def initial_rows():
    """By table and key, what each has to begin with."""
    keys = np.array(UNIVERSE, np.int64)
    layout = keyed_of("least recent", 1).layout
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
        kind: Of `OPTIONS`.
        parts: How many there may be.
        made: The number of operations, by all of these.
    """

    kind: str
    parts: tuple[int, ...]
    made: collections.Counter

    def __init__(self):
        super().__init__()
        self.keyed = keyed_of(self.kind, 1)
        self.keyed.group.clear()
        self.keyed.steps.assign(0)
        self.reference = Reference(self.keyed.layout, initial_rows())
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
    @stateful.rule(updates=st.integers(0, 12))
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
        """What is saved goes on on another number of parts, or on the same."""
        self._check_counts()
        saved, steps = self.keyed.saved(), int(self.keyed.steps)
        self.keyed = keyed_of(self.kind, self.parts[which % len(self.parts)])
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


def run(kind, parts, operations, steps):
    """Makes at least so many operations; after each `steps` of them all begins anew."""
    made = collections.Counter()
    machine = type("Operations", (Operations,), {"kind": kind, "parts": parts, "made": made})
    settings = hypothesis.settings(
        # A twentieth more, since hypothesis ends some before the last step.
        max_examples=operations * 21 // (20 * steps) + 1,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],  # to shrink what fails would run for very long
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    stateful.run_state_machine_as_test(machine, settings=settings)
    assert made["operations"] >= operations


def test_a_group_is_as_the_reference_after_any_operations():
    """Also one that counts how often keys occur; the other kinds are slow to make."""
    run("admitted late", (1, 2), 160, 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_group_is_as_the_reference_after_very_many_operations(kind):
    """20,000 of each kind: 100,000."""
    run(kind, (1, 2, 3), 20_000, 100)
