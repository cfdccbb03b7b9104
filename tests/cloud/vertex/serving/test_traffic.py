"""Splits of traffic: whatever is done with one, it adds up to 100."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cloud.vertex.serving.rollout import joined, left
from tests.cloud.vertex.fake_serving import is_whole


@st.composite
def splits(draw):
    """A split of up to six deployed models, some of which may have no traffic."""
    cuts = sorted(draw(st.lists(st.integers(0, 100), max_size=5)))
    edges = [0, *cuts, 100]
    shares = [high - low for low, high in itertools.pairwise(edges)]
    return {str(1000 + place): share for place, share in enumerate(shares)}


@given(splits(), st.integers(1, 100))
def test_a_newcomer_gets_its_share_and_the_others_keep_their_proportions(split, share):
    found = joined(split, "0", share)
    assert is_whole(found, found)
    assert found["0"] == share
    for name, before in split.items():
        assert abs(found[name] - before * (100 - share) / 100) < 1
        assert before or not found[name]
    if share < 100:
        back = left(found, "0")
        assert is_whole(back, split)
        # A percent of 100 - share is 100 / (100 - share) of 100.
        for name, before in split.items():
            assert abs(back[name] - before) < 1 + 100 / (100 - share)


def test_one_model_that_was_alone_is_alone_again():
    for share in range(1, 100):
        split = joined({"7": 100}, "0", share)
        assert split == {"7": 100 - share, "0": share}
        assert left(split, "0") == {"7": 100}


@given(splits())
def test_whoever_leaves_the_rest_is_a_split(split):
    for name in split:
        found = left(split, name)
        assert is_whole(found, found)
        assert bool(found) == (split[name] != 100)


def test_a_newcomer_gets_all_where_nothing_has_traffic():
    assert joined({"1": 0}, "0", 100) == {"1": 0, "0": 100}
