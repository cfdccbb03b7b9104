import gzip
from pathlib import Path

import pytest

from tfps.data import converters
from tfps.data.row_blocks import find_header, row_blocks
from tfps.data.row_format import Field, RowFormat
from tfps.errors import UserError

FORMAT = RowFormat(
    columns=("user", "city", "liked"),
    delimiter=",",
    fields={
        "who": Field(("user",), str.encode),
        "place": Field(("city",), str.encode),
        "y": Field(("liked",), converters.integer),
    },
)


def found(tmp_path: Path, text: str, row_format: RowFormat = FORMAT) -> tuple | None:
    (tmp_path / "rows.csv").write_text(text)
    header = find_header(str(tmp_path / "rows.csv"), row_format)
    return header and (header.lines, header.columns)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("user,city,liked\na,b,1\n", (1, ("user", "city", "liked"))),
        ('\n \n"liked", user ,"x\ny",city\n', (4, ("liked", "user", "x\ny", "city"))),
        ("user,city\n", (1, ("user", "city"))),
        ("User,City,Liked\n", (1, ("User", "City", "Liked"))),
        ("who,place,y\n", (1, ("who", "place", "y"))),
        ("a,b,c,liked,city\n", (1, ("a", "b", "c", "liked", "city"))),
        ("user,town,fan\n", None),
        ("u1,Ulm,1\n", None),
        ("", None),
        ('"\n', None),
    ],
)
def test_a_line_of_which_half_are_names_is_a_header(tmp_path: Path, text: str, header) -> None:
    assert found(tmp_path, text) == header


def test_numbers_are_no_names(tmp_path: Path) -> None:
    fields = {"x": Field(("0", "1"), converters.number)}
    assert found(tmp_path, "0,1\n", RowFormat(("0", "1"), ",", fields)) is None


def test_a_byte_order_mark_is_no_part_of_a_name_or_a_cell(tmp_path: Path) -> None:
    assert found(tmp_path, "\ufeffuser,city,liked\n") == (1, ("user", "city", "liked"))
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress("\ufeffu1,Ulm,1\n".encode()))
    assert next(next(row_blocks(str(path), ",")).rows(FORMAT, print))[1]["who"] == b"u1"
    path.write_bytes(gzip.compress(b"u1,Ulm,1\n"))
    assert next(next(row_blocks(str(path), ",")).rows(FORMAT, print))[1]["who"] == b"u1"


def test_a_layout_takes_columns_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("liked,more,user,city\n")
    header = find_header(str(path), FORMAT)
    assert header.layout(FORMAT).columns == ("liked", "more", "user", "city")
    assert header.layout(FORMAT).fields == FORMAT.fields
    path.write_text("liked,user,user\n")
    header = find_header(str(path), FORMAT)
    with pytest.raises(UserError, match="line 1 is a header without the column 'city'"):
        header.layout(FORMAT)
    with pytest.raises(UserError, match="the header names the column 'user' twice"):
        header.layout(FORMAT.only(["who", "y"]))
