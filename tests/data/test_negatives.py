"""Negatives beside the records of a shard: which ids they have, and that they stay the same."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfps
from configs.smoke import Smoke
from tfps.data import examples
from tfps.data.feature import Feature
from tfps.data.negatives import POPULARITY, UNIFORM, Negatives
from tfps.data.record_source import Batching, RecordSource, read_batches, read_good_batches
from tfps.data.schema import Schema
from tfps.errors import UserError
from tfps.experiment import overrides

VOCABULARY, COUNT, BATCH, NEGATIVES = 12, 50, 8, 3
FEATURES = (
    Feature("user", "int64", vocabulary=100),
    Feature("item", "int64", vocabulary=VOCABULARY),
    Feature("tags", "int64", (None,)),
    Feature("price", "float32", (2,)),
)
LABELS = (Feature("bought", "int64", vocabulary=2), Feature("weight", "float32"))
OF = ("item", "tags", "price")


def negatives(by, count=NEGATIVES):
    of = OF if by == POPULARITY else OF[:1]
    return Negatives.of(count, of, by, FEATURES, LABELS[:1])


def record(user, item):
    """What belongs to an item can be told from it."""
    tags, price = [item] * (item % 3), np.array([item, -item], "f4")
    values = {"user": user, "item": item, "tags": tags, "price": price}
    return {**values, "bought": 1, "weight": user / 2}


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("data") / "shard.tfrecord")
    items = np.random.default_rng(0).integers(0, VOCABULARY, COUNT).tolist()
    with tf.io.TFRecordWriter(path) as writer:
        for user, item in enumerate(items):
            writer.write(examples.encode(record(user, item), FEATURES, LABELS))
    return RecordSource(path, end=COUNT).tensors()


def read(shard, by, part=(0, -(-COUNT // BATCH)), seed=3, reader=read_batches, empty=0):
    """The batches of a part of the shard: features and labels as NumPy arrays and lists."""
    batching = Batching(Schema(FEATURES, LABELS), BATCH, 2, negatives=negatives(by))
    seed, *part = (tf.constant(number, tf.int64) for number in (seed, *part))
    if reader is read_good_batches:
        found = reader(shard, batching, seed, part).take(part[1] - part[0])
        batches = [batch[1:] for _, batch in found]
    else:
        batches = reader(shard, batching, seed, part, empty)
    return [
        {
            name: value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()
            for name, value in {**features, **labels}.items()
        }
        for features, labels in batches
    ]


@pytest.mark.parametrize("by", [UNIFORM, POPULARITY])
def test_each_record_is_followed_by_its_negatives(shard, by):
    batches = read(shard, by)
    assert [len(batch["user"]) for batch in batches] == [32, 32, 32, 32, 32, 32, 8]
    users = []
    for batch in batches:
        for first in range(0, len(batch["user"]), 1 + NEGATIVES):
            group = slice(first, first + 1 + NEGATIVES)
            user, own = batch["user"][first], batch["item"][first]
            users.append(user)
            assert batch["user"][group] == [user] * 4
            assert batch["weight"][group] == [user / 2] * 4
            assert batch["bought"][group] == [1, 0, 0, 0]
            assert own not in batch["item"][group][1:]
            known = batch["item"][group] if by == POPULARITY else [own] * 4
            assert batch["tags"][group] == [record(0, item)["tags"] for item in known]
            assert batch["price"][group] == [[item, -item] for item in known]
    assert sorted(users) == list(range(COUNT))


@pytest.mark.parametrize("by", [UNIFORM, POPULARITY])
def test_seed_and_place_decide_which_negatives_there_are(shard, by):
    whole = read(shard, by)
    assert read(shard, by) == whole
    assert read(shard, by, part=(3, 6)) == whole[3:6]
    assert read(shard, by, reader=read_good_batches) == whole
    other = read(shard, by, seed=4)
    assert [batch["item"] for batch in other] != [batch["item"] for batch in whole]


@pytest.mark.parametrize("by", [UNIFORM, POPULARITY])
def test_a_batch_without_records_has_no_negatives(shard, by):
    *_, empty = read(shard, by, part=(0, 1), empty=1)
    assert empty == {name: [] for name in empty}


def drawn(by, ids, count, columns=("item",), number=0):
    """Items of the negatives of one batch, `[batch, count]`."""
    sampled = Negatives.of(count, columns, by, FEATURES[1:2], LABELS[:1])
    numbers = tf.constant(7, tf.int64), tf.constant(number, tf.int64)
    ids = tf.constant(ids, tf.int64)
    features, _ = sampled.add_to({"item": ids}, {"bought": tf.ones_like(ids)}, *numbers)
    return features["item"].numpy().reshape([len(ids), 1 + count])[:, 1:]


# Each count is a sum of DRAWS drawings with known chances: it may be five standard deviations off.
DRAWS = 20_000


def assert_drawn(found, chances):
    counts = np.bincount(found, minlength=len(chances))
    expected = DRAWS * np.asarray(chances)
    off = np.abs(counts - expected)
    assert (off <= 5 * np.sqrt(expected * (1 - np.asarray(chances)))).all()


def test_evenly_every_other_id_is_as_likely():
    found = drawn(UNIFORM, [0, 5, VOCABULARY - 1], DRAWS)
    for own, ids in zip([0, 5, VOCABULARY - 1], found, strict=True):
        chances = np.full(VOCABULARY, 1 / (VOCABULARY - 1))
        chances[own] = 0
        assert_drawn(ids, chances)


IDS = np.array([4, 7, 4, 9, 2, 7, 7])


def test_by_popularity_an_id_is_as_likely_as_the_records_that_have_it():
    found = drawn(POPULARITY, IDS, DRAWS)
    for own, ids in zip(IDS, found, strict=True):
        others = np.bincount(IDS[own != IDS], minlength=VOCABULARY)
        assert_drawn(ids, others / others.sum())


def test_where_a_batch_has_one_id_alone_others_are_drawn_evenly():
    found = drawn(POPULARITY, [4, 4], DRAWS)
    chances = np.full(VOCABULARY, 1 / (VOCABULARY - 1))
    chances[4] = 0
    for ids in found:
        assert_drawn(ids, chances)


def test_an_id_may_be_a_list_of_one():
    ids = tf.constant([[4], [7]], tf.int64)
    feature = Feature("item", "int64", (1,), VOCABULARY)
    sampled = Negatives.of(2, ("item",), UNIFORM, (feature,), LABELS[:1])
    numbers = tf.constant(7, tf.int64), tf.constant(0, tf.int64)
    features, labels = sampled.add_to({"item": ids}, {"bought": tf.ones_like(ids)}, *numbers)
    assert features["item"].shape == labels["bought"].shape == (6, 1)
    of_first, of_second = drawn(UNIFORM, [4, 7], 2)
    assert features["item"].numpy()[:, 0].tolist() == [4, *of_first, 7, *of_second]


def test_records_and_batches_draw_apart():
    found = [drawn(UNIFORM, [0, 0], 100, number=number) for number in (0, 1)]
    columns = [ids.tolist() for both in found for ids in both]
    assert len({tuple(ids) for ids in columns}) == 4


ITEM = Feature("item", "int64", vocabulary=9)
YES = Feature("bought", "int64", vocabulary=2)


@pytest.mark.parametrize(
    ("names", "by", "features", "targets", "told"),
    [
        ((), UNIFORM, (ITEM,), (YES,), r"which feature is drawn\? Name it"),
        (("movie",), UNIFORM, (ITEM,), (YES,), "'movie' is no feature of the task, .* item"),
        (("item",), UNIFORM, (Feature("item", "int64"),), (YES,), "'item' is no id to draw"),
        (("item",), UNIFORM, (Feature("item", "int64", (3,), 9),), (YES,), "'item' is no id"),
        (OF, UNIFORM, FEATURES, (YES,), "which tags belongs to an id .* or name item alone"),
        (("item",), UNIFORM, (ITEM,), (), "no label that could be 0"),
        (
            ("item",),
            UNIFORM,
            (ITEM,),
            (Feature("kind", "int64", (), 5),),
            "'kind' is not one of yes",
        ),
        (("item",), UNIFORM, (ITEM,), (Feature("name", "string"),), "'name' is not one of yes"),
    ],
)
def test_negatives_that_cannot_be_sampled_are_refused(names, by, features, targets, told):
    with pytest.raises(UserError, match=told):
        Negatives.of(4, names, by, features, targets)


def test_the_fields_of_a_config_say_which_negatives_there_are():
    plain = tfps.Experiment("smoke", Smoke())
    assert plain.negatives() is None
    texts = ["data.negatives=2", "data.negatives_of=token", "data.negatives_by=popularity"]
    sampled = overrides.apply(plain, texts).negatives()
    assert sampled == Negatives(2, ("token",), 20, ("label",), True)
    with pytest.raises(UserError, match=r"data\.negatives_by=log must be one of uniform, pop"):
        overrides.apply(plain, ["data.negatives_by=log"])
    with pytest.raises(
        UserError, match=r"data\.negatives_of='item' must be a tuple, each a text: write"
    ):
        dataclasses.replace(plain.data, negatives_of="item")
