"""A group of tables is as a reference in plain Python, whatever is done in whatever order."""

import collections

import pytest

from tests.store.keyed.operations import OPTIONS, operate


def run(kind, parts, operations, steps):
    made = collections.Counter()
    operate(kind, parts, operations, steps, made)
    assert made["operations"] >= operations


def test_a_group_is_as_the_reference_after_any_operations():
    """Also one that counts how often keys occur; the other kinds are slow to make."""
    run("admitted late", (2,), 60, 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_group_is_as_the_reference_after_very_many_operations(kind):
    """Twice as many and more as find each fault that test_reference_finds_faults puts in."""
    run(kind, (1, 2, 3), 2_000, 100)
