import pytest

from tests.data.example_records import example, list_with_context, sequence_example, value
from tfps.data.bad_records import find_problem, foreign_kind
from tfps.data.feature import Feature

SEQUENCE = "is a tf.train.SequenceExample (feature_lists: items), not a tf.train.Example"
LIST = (
    "is an ExampleListWithContext of 2 examples (context: query; examples: doc), not a "
    "tf.train.Example"
)


@pytest.mark.parametrize(
    ("record", "kind"), [(sequence_example(), SEQUENCE), (list_with_context(), LIST)]
)
def test_other_messages_are_recognized(record: bytes, kind: str) -> None:
    assert foreign_kind(record) == kind
    for name in ("user", "items"):  # also where the context has all that must be there
        features = [Feature("items", "int64", (None,)), Feature(name, "int64", (None,))]
        assert find_problem(record, features) == kind


@pytest.mark.parametrize(
    "held",
    [{}, {"a": value(1)}, {"\n\x02\n\x00": value(b"\n\x04\n\x02\x1a\x00")}, {"": value(1.0)}],
)
def test_an_example_is_none_of_them(held: dict) -> None:
    assert foreign_kind(example(held)) == ""
