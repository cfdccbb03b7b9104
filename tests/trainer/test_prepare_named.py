"""Tasks without `rows()`: a file's columns have the names of features and labels."""

import dataclasses
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.trainer.one_dataset import prepare
from tfps.data.examples import ValueCounts
from tfps.data.manifest import Manifest
from tfps.errors import UserError
from trainer.datasets import preparation as program
from trainer.datasets.dataset_parts import parse_split

HEADER = "id,town,price,weight,tags,seen_0,seen_1,sold"
ROWS = (
    '7,"Köln, ""Süd""",1.5,2,a|b,1,2,1',
    "8,Ulm,2.5,,,3,,0",
    '9,"two\nlines",3.5,NA,c,,,1',
)


@dataclasses.dataclass(frozen=True)
class Listings(tfps.Task):
    has_default: bool = True

    def features(self) -> tuple[tfps.Feature, ...]:
        default = -1.0 if self.has_default else None
        return (
            tfps.Feature("town", "string"),
            tfps.Feature("price", "float32"),
            tfps.Feature("weight", "float32", default=default),
            tfps.Feature("tags", "string", (None,)),
            tfps.Feature("seen", "int64", (2,), default=5),
        )

    def label(self) -> tfps.Feature:
        return tfps.Feature("sold", "int64", vocabulary=2)

    def build_model(self) -> keras.Model:
        raise NotImplementedError

    def optimizer(self) -> keras.optimizers.Optimizer:
        return keras.optimizers.Adam()


def listings(has_default: bool = True) -> tfps.Experiment:
    return tfps.Experiment("listings", Listings(has_default), train=tfps.Train(batch_size=2))


def without_default() -> tfps.Experiment:
    return listings(has_default=False)


def write(directory: Path, text: str, name: str = "rows.csv") -> str:
    content = text.encode()
    (directory / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(directory / name)


def table(*rows: str, header: str = HEADER) -> str:
    return "\n".join((header, *rows)) + "\n"


def records(dataset: Manifest) -> list[Mapping[str, Any]]:
    """What the records hold, each feature's values by name."""
    found = []
    for shard in dataset.shards:
        for record in tf.data.TFRecordDataset(dataset.path_of(shard)).as_numpy_iterator():
            held = tf.train.Example.FromString(record).features.feature
            found.append(
                {
                    name: list(getattr(each, each.WhichOneof("kind")).value)
                    for name, each in held.items()
                }
            )
    return found


EXPECTED = [
    {"town": ['Köln, "Süd"'.encode()], "price": [1.5], "weight": [2.0], "tags": [b"a", b"b"]}
    | {"seen": [1, 2], "sold": [1]},
    {"town": [b"Ulm"], "price": [2.5], "tags": [], "seen": [3, 5], "sold": [0]},
    {"town": [b"two\nlines"], "price": [3.5], "tags": [b"c"], "sold": [1]},
]


def test_missing_cells_are_missing_in_the_records(tmp_path: Path) -> None:
    made = prepare(listings, [write(tmp_path, table(*ROWS))], str(tmp_path / "out"), 1)
    assert records(made) == EXPECTED
    assert made.counts["weight"] == ValueCounts(missing=2)
    assert made.counts["seen"] == ValueCounts(missing=1)
    parsed = made.path_of(made.shards[0])
    batch = next(iter(tf.data.TFRecordDataset(parsed).batch(9)))
    values, _ = tfps.data.examples.parse(batch, Listings().features())
    np.testing.assert_array_equal(values["weight"], [2, -1, -1])
    np.testing.assert_array_equal(values["seen"], [[1, 2], [3, 5], [5, 5]])


def test_a_bad_row_changes_nothing_in_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, table(*ROWS, "7,Ulm,x,1,,1,1,0"))
    made = prepare(listings, [path], str(tmp_path / "out"), 1, max_bad_rows=1)
    assert (records(made), made.rejected_rows) == (EXPECTED, 1)
    assert made.counts["weight"] == ValueCounts(missing=2)


@pytest.mark.parametrize("delimiter", ["\t", ";", "|"])
def test_columns_may_stand_in_any_order_with_others_between(tmp_path: Path, delimiter: str) -> None:
    turned = delimiter.join(["sold", "x", "seen_1", "seen_0", "weight", "price", "tags", "town"])
    row = delimiter.join(["1", "?", "2", "1", "2", "1.5", "", "Ulm"])
    text = "\ufeff" + turned + "\r\n" + row + "\r\n"
    made = prepare(listings, [write(tmp_path, text, "a.csv.gz")], str(tmp_path / "out"), 1)
    [record] = records(made)
    assert record == EXPECTED[0] | {"town": [b"Ulm"], "tags": []}


def test_a_vector_may_stand_in_one_cell(tmp_path: Path) -> None:
    text = "town,price,weight,tags,seen,sold\nUlm,1,2,a,3|4,0\n"
    [record] = records(prepare(listings, [write(tmp_path, text)], str(tmp_path / "out"), 1))
    assert record["seen"] == [3, 4]


def test_parquet_with_missing_values_makes_the_same_records(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "town": ['Köln, "Süd"', "Ulm", "two\nlines"],
        "price": [1.5, 2.5, 3.5],
        "weight": [2.0, None, float("nan")],
        "tags": [["a", "b"], [], ["c"]],
        "seen_0": arrow.array([1, 3, None], arrow.int64()),
        "seen_1": arrow.array([2, None, None], arrow.int64()),
        "sold": [1, 0, 1],
        "sold_at": [1, 2, 3],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    made = prepare(listings, [str(tmp_path / "a.parquet")], str(tmp_path / "out"), 1)
    assert records(made) == EXPECTED


def test_columns_are_kept_as_text(tmp_path: Path) -> None:
    path = write(tmp_path, table(*ROWS))
    made = prepare(listings, [path], str(tmp_path / "out"), 1, keep=("id",))
    assert records(made) == [
        each | {"id": [number]} for each, number in zip(EXPECTED, (b"7", b"8", b"9"), strict=True)
    ]
    assert "id" not in {each["name"] for each in made.features}
    for keep, message in (
        ("town", "the records hold it already"),
        ("size", "no column 'size', which --keep names; the columns are 'id', 'town'"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(listings, [path], str(tmp_path / "none"), 1, keep=(keep,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            table(*ROWS).replace("price", "Price").replace("town", "city"),
            r"rows\.csv line 1: there is no column 'town', 'price' \(there are 'id', 'city', "
            r"'Price', .*rename the columns or the features, or give the task rows\(\)",
        ),
        (
            table(*ROWS, header=HEADER.replace("id", "town")),
            "line 1: the header names the column 'town' twice",
        ),
        ("", r"rows\.csv is empty"),
        (table("1,Ulm,,2,,1,1,1"), r"line 2 column price: the cell is empty, as in 1 of 1 \(100"),
        (table("1,Ulm,NA,2,,1,1,1"), "line 2 column price: 'NA' is not a number; fix the row"),
        (table("1,Ulm,1,2,,1,1,"), "line 2 column sold: the cell is empty, .*; fix the row, or"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare(listings, [write(tmp_path, text)], str(tmp_path / "out"), 1)
    assert not list(tmp_path.glob("out/*"))


def test_a_missing_value_names_the_share_and_both_ways_out(tmp_path: Path) -> None:
    full, lacking = "7,Ulm,1,2,,1,1,1", "8,Ulm,2,,,1,1,0"
    path = write(tmp_path, table(full, lacking, full, lacking))
    with pytest.raises(UserError) as caught:
        prepare(without_default, [path], str(tmp_path / "out"), 1)
    assert str(caught.value) == (
        f"{path} line 3 column weight: the cell is empty, as in 2 of 4 (50.00%) of the rows read "
        "with it; say what they count as, such as tfps.Feature('weight', 'float32', default=0.0), "
        "or leave bad rows out with --max_bad_rows=1 or more"
    )


def test_a_split_is_drawn_by_the_seed_alone(tmp_path: Path) -> None:
    rows = [f"{n},Ulm,{n},1,,1,1,{n % 2}" for n in range(2000)]
    path = write(tmp_path, table(*rows))

    def made(name: str, **arguments: Any) -> dict[str, list[float]]:
        output = program.Output(str(tmp_path / name), 2, split={"train": 0.8, "eval": 0.2})
        datasets = program.prepare(listings, [path], output, **arguments)
        assert [each.counts["seen"] for each in datasets] == [ValueCounts(), ValueCounts()]
        return {
            each.directory.rpartition("/")[2]: [held["price"][0] for held in records(each)]
            for each in datasets
        }

    first = made("a")
    assert sorted(first["train"] + first["eval"]) == list(range(2000))
    assert 1540 < len(first["train"]) < 1660  # 4.5 standard deviations around 1,600
    assert made("b", processes=2) == first
    assert made("c", seed=1)["eval"] != first["eval"]
    shuffled = made("d", seed=1, shuffle=True)
    assert sorted(shuffled["train"] + shuffled["eval"]) == list(range(2000))
    assert shuffled["train"][:1000] != sorted(shuffled["train"][:1000])


@pytest.mark.parametrize("text", ["train", "train:1", "a:0.5,a:0.5", "a/b:0.5,c:0.5", "a:0.5,b:x"])
def test_a_split_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"is no NAME:SHARE .* such as --split=train:0\.9,eval:"):
        parse_split(text)


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(UserError, match=r"--split=a:0\.5,b:0\.4: the shares sum to 0\.9, not 1"):
        parse_split("a:0.5,b:0.4")
    assert parse_split("a:0.7, b:0.2,c:0.1") == {"a": 0.7, "b": 0.2, "c": 0.1}
