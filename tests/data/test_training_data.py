"""Which data each epoch of a run trains."""

import pytest

from tfps.data.manifest import Manifest
from tfps.data.shards import RecordIndex, Shard
from tfps.data.training_data import TrainingData, directories
from tfps.errors import UserError


@pytest.mark.parametrize(
    ("named", "epochs", "found"),
    [
        ("data/train", 3, ["data/train"]),
        ("gs://b/1,gs://b/2", 2, ["gs://b/1", "gs://b/2"]),
        ("a,b,a", 5, ["a", "b", "a"]),
        ("day-{epoch}", 3, ["day-1", "day-2", "day-3"]),
        ("day-{epoch:02}/of-{epoch}", 2, ["day-01/of-1", "day-02/of-2"]),
        ("{other}", 2, ["{other}"]),
    ],
)
def test_a_name_or_some_or_a_pattern_names_the_data_of_epochs(named, epochs, found):
    assert directories(named, epochs) == tuple(found)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("a,b,c", "names 3 datasets, .* train.epochs=2: the last 1 would never be trained"),
        ("a,", "between two commas has no name"),
        ("a,day-{epoch}", "stands alone"),
    ],
)
def test_names_that_some_epochs_could_not_train_are_refused(named, message):
    with pytest.raises(UserError, match=message):
        directories(named, 2)


def manifest(directory, *sizes):
    shards = tuple(Shard(f"{number}", size, 0, "") for number, size in enumerate(sizes))
    index = RecordIndex(1, ())
    return Manifest(
        name=directory, features=[], labels=[], shards=shards, index=index, directory=directory
    )


def test_shards_are_counted_over_all_datasets_each_once():
    first, empty, last = manifest("a", 30, 10), manifest("none"), manifest("b", 5)
    data = TrainingData.of(first, empty, first, last)
    assert data.datasets == (first, empty, last)
    assert [number for number, _ in data.shards_of(2)] == [0, 1]
    assert data.shards_of(3) == [(2, last.shards[0])]
    assert [data.find(number) for number in range(3)] == [(first, 0), (first, 1), (last, 0)]
    before = [data.records_before(epoch) for epoch in range(6)]
    assert before == [0, 40, 40, 80, 85, 125]
    assert data.identities() == tuple(x.identity for x in (first, empty, first, last))
