"""Splits of traffic: whatever is done with one, it adds up to 100."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.vertex.serving import traffic


@st.composite
def splits(draw):
    """A split of up to six deployed models, some of which may have no traffic."""
    cuts = sorted(draw(st.lists(st.integers(0, 100), max_size=5)))
    edges = [0, *cuts, 100]
    shares = [high - low for low, high in itertools.pairwise(edges)]
    return {str(1000 + place): share for place, share in enumerate(shares)}


@given(splits(), st.integers(1, 100))
def test_a_newcomer_gets_its_share_and_the_others_keep_their_proportions(split, share):
    found = traffic.joined(split, "0", share)
    assert traffic.is_split(found)
    assert found["0"] == share
    for name, before in split.items():
        assert abs(found[name] - before * (100 - share) / 100) < 1
        assert before or not found[name]


@given(splits(), st.integers(1, 99))
def test_what_a_newcomer_gives_back_is_what_the_others_had(split, share):
    found = traffic.left(traffic.joined(split, "0", share), "0")
    assert traffic.is_split(found)
    assert "0" not in found
    # A percent of 100 - share is 100 / (100 - share) of 100.
    for name, before in split.items():
        assert abs(found[name] - before) < 1 + 100 / (100 - share)


def test_one_model_that_was_alone_is_alone_again():
    for share in range(1, 100):
        split = traffic.joined({"7": 100}, "0", share)
        assert split == {"7": 100 - share, "0": share}
        assert traffic.left(split, "0") == {"7": 100}


@given(splits())
def test_whoever_leaves_the_rest_is_a_split(split):
    for name in split:
        found = traffic.left(split, name)
        assert traffic.is_split(found)
        assert bool(found) == (split[name] != 100)


def test_all_leave_one_after_the_other():
    split = {"1": 34, "2": 33, "3": 33}
    for name in ("2", "3"):
        split = traffic.left(split, name)
        assert sum(split.values()) == 100
    assert traffic.left(split, "1") == {}


@pytest.mark.parametrize(
    ("split", "is_one"),
    [({}, True), ({"1": 100}, True), ({"1": 99}, False), ({"1": 101, "2": -1}, False)],
)
def test_what_is_a_split(split, is_one):
    assert traffic.is_split(split) == is_one


@pytest.mark.parametrize("share", [0, 101, -1])
def test_no_share(share):
    with pytest.raises(ValueError, match="is no share"):
        traffic.joined({"1": 100}, "0", share)


def test_a_share_needs_others():
    for split in ({}, {"1": 0}):
        with pytest.raises(ValueError, match="nothing else takes the rest"):
            traffic.joined(split, "0", 10)
    assert traffic.joined({"1": 0}, "0", 100) == {"1": 0, "0": 100}


def test_a_split_is_shown_without_those_that_get_nothing():
    assert traffic.shown({"1": 90, "2": 0, "3": 10}) == "90 % 1, 10 % 3"
    assert traffic.shown({}) == "none"
