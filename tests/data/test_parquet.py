import decimal
import sys
from pathlib import Path

import pytest

from configs import smoke
from tests.trainer.one_dataset import prepare
from tfps.data import converters
from tfps.data.parquet import is_parquet, parquet_blocks
from tfps.data.row_format import Field, RowFormat
from tfps.errors import UserError

FORMAT = RowFormat(
    ("label", "age", "town", "tags", "member", "price"),
    ",",
    {
        "label": Field(("label",), converters.integer),
        "age": Field(("age",), lambda text: converters.number(text) if text else -1.0),
        "town": Field(("town",), str.encode),
        "tags": Field(("tags",), converters.integer, separator="|"),
        "flags": Field(("member", "price"), converters.number),
    },
)


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow")


def write(arrow, path: Path, **columns) -> str:
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table(columns), path, row_group_size=700)
    return str(path)


def columns(arrow, count: int = 3) -> dict:
    return {
        "unused": arrow.array([{"a": 1}] * count),
        "tags": arrow.array(([[1, 2], [], None] * count)[:count]),
        "town": arrow.array([" Ulm", "Bonn", "K\u00f6ln"] * (count // 3)).dictionary_encode(),
        "label": arrow.array([1.0, 0.0, 1.0] * (count // 3)),
        "age": arrow.array([31, None, 7] * (count // 3), arrow.int16()),
        "price": arrow.array([decimal.Decimal("1.50")] * count),
        "member": arrow.array([True, False, True] * (count // 3)),
    }


def test_columns_are_found_by_name_and_typed_values_converted(arrow, tmp_path: Path) -> None:
    path = write(arrow, tmp_path / "a", **columns(arrow))
    assert is_parquet(path)
    [block] = parquet_blocks(path, FORMAT)
    count, values = block.columns(FORMAT)
    assert (count, block.size) == (3, Path(path).stat().st_size)
    assert values == {
        "label": [[1, 0, 1]],
        "age": [[31.0, -1.0, 7.0]],
        "town": [[b"Ulm", b"Bonn", "K\u00f6ln".encode()]],
        "tags": [[[1, 2], [], []]],
        "flags": [[1.0, 0.0, 1.0], [1.5, 1.5, 1.5]],
    }
    named = list(block.rows(FORMAT, lambda bad: pytest.fail(str(bad))))
    assert named[1] == (
        2,
        {"label": 0, "age": -1.0, "town": b"Bonn", "tags": [], "flags": [0.0, 1.5]},
    )


def test_blocks_follow_each_other(arrow, tmp_path: Path) -> None:
    path = write(arrow, tmp_path / "a", **columns(arrow, 3000))
    blocks = list(parquet_blocks(path, FORMAT))
    assert len(blocks) > 2
    assert sum(block.batch.num_rows for block in blocks) == 3000
    tags = [tags for block in blocks for tags in block.columns(FORMAT)[1]["tags"][0]]
    assert tags == [[1, 2], [], []] * 1000
    [number, _], *_ = blocks[-1].rows(FORMAT, print)
    assert number == blocks[-1].before + 1
    assert blocks[-1].where(number) == f"{path} row {number}"


def test_bad_cells_are_named(arrow, tmp_path: Path) -> None:
    changed = {**columns(arrow), "label": arrow.array([1.5, None, 1.0])}
    changed["town"] = arrow.array([b"Ulm", b"Bonn", b"\xff"])
    path = write(arrow, tmp_path / "a", **changed)
    [block] = parquet_blocks(path, FORMAT)
    with pytest.raises(ValueError, match="is not an integer"):
        block.columns(FORMAT)
    bad: list[str] = []
    assert list(block.rows(FORMAT, lambda each: bad.append(str(each)))) == []
    assert bad == [
        f"{path} row 1 column label: '1.5' is not an integer",
        f"{path} row 2 column label: the cell is empty",
        f"{path} row 3 column town: '\\udcff' is not UTF-8 text",
    ]


def test_files_that_do_not_fit(arrow, tmp_path: Path) -> None:
    def refused(message: str, **changes) -> None:
        held = {**columns(arrow), **changes}
        path = write(arrow, tmp_path / "a", **{k: v for k, v in held.items() if v is not None})
        with pytest.raises(UserError, match=message):
            list(map(lambda block: block.columns(FORMAT), parquet_blocks(path, FORMAT)))

    refused("has no column age, town .it has unused, tags, label", age=None, town=None)
    refused("column age is of type list<.*has no separator", age=arrow.array([[1], [2], [3]]))
    refused("column age is of type struct.*must be of numbers", age=arrow.array([{"a": 1}] * 3))
    whole = Path(write(arrow, tmp_path / "a", **columns(arrow))).read_bytes()
    (tmp_path / "a").write_bytes(whole[:-7])
    with pytest.raises(UserError, match="is not a whole Parquet file"):
        list(parquet_blocks(str(tmp_path / "a"), FORMAT))


def test_a_dataset_of_a_parquet_file_is_that_of_its_rows(arrow, tmp_path: Path) -> None:
    cells = [[row % 7 + column / 4 for row in range(2000)] for column in range(4)]
    tokens, labels = [row % 20 for row in range(2000)], [row % 2 for row in range(2000)]
    text = "".join(
        ",".join(map(str, row)) + "\n" for row in zip(*cells, tokens, labels, strict=True)
    )
    (tmp_path / "rows.csv").write_text(text)
    names = smoke.get_config().task.rows().columns
    table = dict(zip(names, [*cells, tokens, labels], strict=True))
    parquet = write(arrow, tmp_path / "rows.parquet", **dict(reversed(table.items())))
    made = [
        prepare(smoke.get_config, [path], str(tmp_path / name), shards=3)
        for name, path in (("a", str(tmp_path / "rows.csv")), ("b", parquet))
    ]
    assert made[0].shards == made[1].shards


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a").write_bytes(b"PAR1...")
    assert is_parquet(str(tmp_path / "a"))
    with pytest.raises(UserError, match=r"needs pyarrow: pip install 'tfps\[parquet\]'"):
        list(parquet_blocks(str(tmp_path / "a"), FORMAT))
    assert not is_parquet(str(tmp_path / "absent"))
