import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfps.data import converters
from tfps.data.row_blocks import RowBlock, row_blocks
from tfps.data.row_format import BadRow, Field, RowFormat
from tfps.errors import UserError

FORMAT = RowFormat(
    columns=("age", "city", "low", "high"),
    delimiter=",",
    fields={
        "age": Field(("age",), converters.integer),
        "city": Field(("city",), converters.token_id(("Paris", "Rome"))),
        "range": Field(("low", "high"), converters.number),
    },
)


def refuse(bad: BadRow) -> None:
    raise bad


def read(
    table: RowFormat, path: str, on_bad_row: Callable[[BadRow], None] = refuse
) -> Iterator[tuple[int, dict]]:
    for block in row_blocks(path, table.delimiter):
        yield from block.rows(table, on_bad_row)


def write(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_values_by_name_with_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, '3, Rome, 1, 2.5\n\n   \n 4 ,"Paris", 1e1,-2\r\n5,Berlin,0,0\n\n')
    assert list(read(FORMAT, path)) == [
        (1, {"age": 3, "city": 2, "range": [1.0, 2.5]}),
        (4, {"age": 4, "city": 1, "range": [10.0, -2.0]}),
        (5, {"age": 5, "city": 0, "range": [0.0, 0.0]}),
    ]


def test_quoted_cells_hold_delimiters_and_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, '1,"a, b\nc",0,0\n2,Rome,0,0\n')
    assert [line for line, _ in read(FORMAT, path)] == [2, 3]


def test_tabs_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.gz"
    path.write_bytes(gzip.compress(b"1\tRome\t2\t3\n\t\t\t\n"))
    tabs = RowFormat(FORMAT.columns, "\t", {"city": FORMAT.fields["city"]})
    assert list(read(tabs, str(path))) == [(1, {"city": 2}), (2, {"city": 0})]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,Rome,0,0", "line 2 column age: 'x' is not an integer"),
        ("1,Rome,0,", "line 2 column high: the cell is empty"),
        ("1,Rome,nan,0", "line 2 column low: 'nan' is not a finite number"),
        ("1,Rome,0", "line 2: 3 columns, but the format has 4"),
        ("1,Rome,0,0,0", "line 2: 5 columns, but the format has 4"),
        (b"1,R\xffme,0,0", "line 2 column city: 'R\\udcffme' is not UTF-8 text"),
    ],
)
def test_a_bad_row_names_file_line_and_column(
    tmp_path: Path, row: str | bytes, reason: str
) -> None:
    raw = row if isinstance(row, bytes) else row.encode()
    path = write(tmp_path, b"1,Rome,0,0\n" + raw + b"\n3,Rome,0,0\n")
    with pytest.raises(BadRow) as caught:
        list(read(FORMAT, path))
    assert str(caught.value) == f"{path} {reason}"


def test_bad_rows_can_be_counted_and_left_out(tmp_path: Path) -> None:
    huge = "x" * 200_000
    path = write(tmp_path, f"x,Rome,0,0\n1,Rome,0,0\n2,Rome\n3,{huge},0,0\n4,Rome,0,0\n")
    bad: list[BadRow] = []
    assert [values["age"] for _, values in read(FORMAT, path, bad.append)] == [1, 4]
    assert len(bad) == 3
    assert "field larger than field limit" in str(bad[2])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.csv: no such file"):
        list(read(FORMAT, str(tmp_path / "absent.csv")))
    with pytest.raises(UserError, match="is a directory"):
        list(read(FORMAT, str(tmp_path)))
    not_gzip = tmp_path / "rows.gz"
    not_gzip.write_text("1,Rome,0,0\n")
    with pytest.raises(UserError, match="not a whole gzip file"):
        list(read(FORMAT, str(not_gzip)))
    not_gzip.write_bytes(gzip.compress(b"1,Rome,0,0\n" * 1000)[:-20])
    with pytest.raises(UserError, match="not a whole gzip file"):
        list(read(FORMAT, str(not_gzip)))


def test_a_cell_of_many_values(tmp_path: Path) -> None:
    path = write(tmp_path, "1, 3| 4 ,Rome\n2,,Rome\n3,5,Rome\n4,5|x,Rome\n")
    genres = Field(("genres",), converters.integer, "|")
    movies = RowFormat(("id", "genres", "city"), ",", {"genres": genres})
    bad: list[BadRow] = []
    assert [values["genres"] for _, values in read(movies, path, bad.append)] == [[3, 4], [], [5]]
    assert str(bad[0]) == f"{path} line 4 column genres: 'x' is not an integer"
    for columns, separator in ((("id", "city"), "|"), (("id",), "")):
        with pytest.raises(UserError, match="field 'f' needs a separator"):
            RowFormat(movies.columns, ",", {"f": Field(columns, converters.integer, separator)})


def test_only_some_fields(tmp_path: Path) -> None:
    path = write(tmp_path, "x,Rome,0,0\n")
    assert list(read(FORMAT.only(["city"]), path)) == [(1, {"city": 2})]
    with pytest.raises(UserError, match="no field gives 'label'"):
        FORMAT.only(["label"])


def test_a_format_that_contradicts_itself() -> None:
    with pytest.raises(UserError, match="field 'b' needs columns of the format, but has z"):
        RowFormat(("a",), ",", {"b": Field(("z",), converters.number)})
    with pytest.raises(UserError, match="named twice"):
        RowFormat(("a", "a"), ",", {})


def test_columns_are_the_rows_of_good_files(tmp_path: Path) -> None:
    text = 'Ulm, 3\n\n"Bonn", 4\n \n'
    table = RowFormat(
        ("city", "age"),
        ",",
        {
            "age": Field(("age",), converters.integer),
            "both": Field(("city", "age"), str.encode),
            "letters": Field(("city",), str.upper, separator="n"),
        },
    )
    block = RowBlock("x", 0, text.encode(), len(text))
    count, columns = block.columns(table)
    assert (count, columns["age"]) == (2, [[3, 4]])
    assert columns["both"] == [[b"Ulm", b"Bonn"], [b"3", b"4"]]
    assert columns["letters"] == [[["ULM"], ["BO", "", ""]]]
    assert [values["letters"] for _, values in block.rows(table, refuse)] == columns["letters"][0]
    assert RowBlock("x", 0, b"\n", 1).columns(table) == (0, {})
    for bad in ("Ulm\n", "Ulm,x\n"):
        with pytest.raises(ValueError):  # noqa: PT011 (`rows` says what it is)
            RowBlock("x", 0, f"{text}{bad}".encode(), 1).columns(table)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_columns_are_the_rows_of_any_text(width: int) -> None:
    names = ("a", "b", "c")[:width]
    fields = {"all": Field(names, str.encode), "last": Field(names[-1:], len)}
    table = RowFormat(names, ",", fields)
    draw = random.Random(width)
    pieces = ["a", "b ", ",", ",", "\n", "\n", "\r\n", '"', "\r", " "]
    seen = set()
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randint(0, 9)))
        bad: list[BadRow] = []
        block = RowBlock("x", 0, text.encode(), len(text))
        rows = [values for _, values in block.rows(table, bad.append)]
        try:
            count, columns = block.columns(table)
        except ValueError:
            seen.add("refused")
            continue
        assert (count, bad) == (len(rows), [])
        if rows:
            seen.add("read")
            assert columns["last"] == [[row["last"] for row in rows]]
            per_row = [row["all"] if width > 1 else [row["all"]] for row in rows]
            assert columns["all"] == [list(column) for column in zip(*per_row, strict=True)]
    assert seen == {"refused", "read"}
