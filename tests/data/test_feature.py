import math

import pytest

from tfps.data.feature import Feature
from tfps.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float32", "default": math.nan}, "must be a number or a text: nan is no number"),
        ({"dtype": "float32", "default": math.inf}, "is no finite float32"),
        ({"dtype": "float32", "default": "0"}, "is no value of dtype float32"),
        ({"dtype": "int64", "default": 0.0}, "is no value of dtype int64"),
        ({"dtype": "int64", "default": True}, "must be a number or a text"),
        ({"dtype": "string", "default": 0}, "is no value of dtype string"),
        ({"dtype": "int64", "default": 5, "vocabulary": 5}, r"is an id outside \[0, 5\)"),
        ({"dtype": "int64", "default": -1, "vocabulary": 5}, r"is an id outside \[0, 5\)"),
        ({"dtype": "int64", "default": 2**63}, "does not fit int64"),
        ({"dtype": "int64", "default": 1, "shape": (None,)}, "has an empty list"),
    ],
)
def test_a_default_that_no_record_could_hold_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=f"feature 'x': default=.* ?{message}"):
        Feature("x", **arguments)


def test_records_are_the_same_whatever_a_default_is() -> None:
    with_default = Feature("x", "int64", vocabulary=("a", "b"), default=0)
    assert with_default.schema() == Feature("x", "int64", vocabulary=("a", "b")).schema()
    assert (with_default.may_be_absent, Feature("x", "int64").may_be_absent) == (True, False)
