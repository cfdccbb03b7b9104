import math

from tfps.data import converters
from tfps.data.feature import Feature
from tfps.data.named_columns import converted
from tfps.data.row_format import Field, RowFormat

FEATURES = (
    Feature("age", "float32"),
    Feature("price", "float32"),
    Feature("town", "string"),
    Feature("seen", "int64", (2,)),
    Feature("month", "int64"),
)


def test_what_a_format_makes_of_cells_is_named() -> None:
    fields = {
        "age": Field(("years",), converters.number),
        "price": Field(("price",), lambda text: math.log1p(float(text))),
        "town": Field(("town",), str.encode),
        "seen": Field(("a", "b"), int),
        "month": Field(("date",), lambda text: int(text[5:7])),
    }
    columns = ("years", "price", "town", "a", "b", "date")
    assert converted(RowFormat(columns, ",", fields), FEATURES) == ["price", "month"]
    assert converted(RowFormat(fields={"month": fields["month"]}), FEATURES) == ["month"]
    assert converted(None, FEATURES) == []
