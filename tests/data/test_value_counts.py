import math

import pytest

from tests.data.example_records import UNSET, example, list_with_context, value
from tfps.data.example_encoder import RecordEncoder
from tfps.data.examples import CountsSum, RecordCounter, ValueCounts, count_records
from tfps.data.feature import Feature
from tfps.data.schema import Schema, notes, refuse_absent, refuse_missing
from tfps.errors import UserError

AGE = Feature("age", "float32")
IDS = Feature("ids", "int64", (2,), 10)
TAGS = Feature("tags", "int64", (None,), 5)
TOWN = Feature("town", "string", (None,))
FEATURES = (AGE, IDS, TAGS, TOWN)
GOOD = {"age": value(1.0), "ids": value(0, 9), "tags": value(4), "town": value(b"age")}
ODD = [
    {**GOOD, "age": UNSET, "town": UNSET},
    {**GOOD, "age": value(dtype="float"), "tags": value(dtype="int")},
    {**GOOD, "age": value(1.0, math.nan), "ids": value(0, 10), "town": value(dtype="bytes")},
    {**GOOD, "age": value(math.inf), "ids": value(1), "tags": value(5, 5, -1)},
    {name: held for name, held in GOOD.items() if name != "tags"},
]
COUNTS = {
    "age": ValueCounts(missing=1, empty=1, misfit=1, not_finite=2),
    "ids": ValueCounts(misfit=1, outside=1),
    "tags": ValueCounts(missing=1, empty=1, outside=1),
    "town": ValueCounts(missing=1, empty=1),
}


def test_every_kind_is_counted_in_records() -> None:
    assert count_records(list(map(example, [GOOD, *ODD])), FEATURES) == COUNTS


def test_records_of_another_type_are_counted_beside_others() -> None:
    records = [example({**GOOD, "ids": value(1.0, 2.0)}), b"\xff", list_with_context()]
    found = count_records([*records, *map(example, ODD)], FEATURES)
    assert found["ids"] == ValueCounts(missing=2, misfit=2, outside=1)
    assert found["tags"] == ValueCounts(missing=3, empty=1, outside=1)
    assert found["age"] == ValueCounts(missing=3, empty=1, misfit=1, not_finite=2)


def test_counts_of_parts_add_up() -> None:
    counter = RecordCounter(FEATURES)
    for held in [GOOD, *ODD] * 900:  # more than are parsed together
        counter.add(example(held))
    counts = CountsSum()
    for _ in range(900):
        counts.add(COUNTS)
    assert counter.finish() == counts.total


def test_what_is_encoded_is_counted_as_what_is_read() -> None:
    encoder = RecordEncoder([AGE, TAGS, TOWN])
    columns = {
        "age": [[1.0, math.nan, -math.inf]],
        "tags": [[[1], [], [4, 0]]],
        "town": [[[b""], [], [b"a", b"b"]]],
    }
    records = encoder.encode(columns)
    assert encoder.counts == count_records(records, [AGE, TAGS, TOWN])
    assert encoder.counts["age"] == ValueCounts(not_finite=2)


def test_what_may_be_wrong_is_said() -> None:
    features = (Feature("age", "float32", default=-1), *FEATURES[1:])
    assert notes({**COUNTS, "town": ValueCounts()}, 6, features) == [
        "'age': 1 of 6 (16.67%) records lack it and count as -1, 1 of 6 (16.67%) records have an "
        "empty list and count as -1, 1 of 6 (16.67%) records hold values of another type or "
        "number, 2 of 6 (33.33%) records hold a NaN or an infinity",
        "'ids': 1 of 6 (16.67%) records hold values of another type or number, 1 of 6 (16.67%) "
        "records hold an id outside [0, 10)",
        "'tags': 1 of 6 (16.67%) records lack it, which is an empty list, 1 of 6 (16.67%) records "
        "have an empty list, 1 of 6 (16.67%) records hold an id outside [0, 5)",
    ]


def test_a_feature_that_no_record_has_is_refused_with_those_that_are_there() -> None:
    counts = {"itmes": ValueCounts(missing=3), "age": ValueCounts(missing=2)}
    features = [Feature("itmes", "int64", (None,)), AGE]
    message = (
        r"data: none of the 3 records has 'itmes' \(they have '\\x1b\[2J', items\); did you mean "
        r"items\? The config's"
    )
    with pytest.raises(UserError, match=message):
        refuse_absent(counts, 3, features, ["\x1b[2J", "items"], "data")
    refuse_absent(counts, 4, features, [], "data")


def test_records_that_cannot_be_trained_are_refused_with_the_ways_out() -> None:
    schema = Schema((Feature("x", "int64", (2,)), Feature("y", "float32", default=1.0)), (AGE,))
    message = (
        r"DATA: 1 of 3 \(33.33%\) records have no value of 'x'; say what they count as, such as "
        r"tfps\.Feature\('x', 'int64', \(2,\), default=0\), or leave these records out of the data"
    )
    with pytest.raises(UserError, match=message):
        refuse_missing({"x": ValueCounts(missing=1)}, 3, schema, "DATA")
    with pytest.raises(
        UserError, match=r"have no value of 'age'; leave these records out of the data$"
    ):
        refuse_missing({"age": ValueCounts(missing=1)}, 3, schema, "DATA")
    refuse_missing({"y": ValueCounts(missing=1)}, 3, schema, "DATA")
    with pytest.raises(UserError, match=r"3 of 3 \(100.00%\) records have no value of 'x'"):
        refuse_missing({"x": ValueCounts(missing=1, empty=2)}, 3, schema, "DATA")
    refuse_missing({}, 3, schema, "DATA")  # nobody counted
