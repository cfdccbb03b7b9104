"""`trainer.analyze`: from a table to a config that trains."""

import dataclasses
import datetime
import random
import re
import types
from pathlib import Path

import pytest

from configs import smoke
from tests.loaded import client
from tfps.data import manifest
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.model.stateless_model import StatelessModel
from trainer.datasets.generation import generate
from trainer.table.analysis import _commands
from trainer.table.column_kind import kind_of
from trainer.table.column_summary import ColumnSummary
from trainer.table.config_text import config_files
from trainer.table.table_page import _drawn, page
from trainer.table.table_scan import Table, scan

KINDS = {
    "nr": "another value in each row",
    "seen at": "date",
    "town": "category",
    "seller_id": "ids",
    "zip": "category",
    "tags": "list",
    "note": "text",
    "price": "number",
    "weight": "number",
    "same": "one value only",
    "sold": "category",
}


WORDS = ("old", "new", "red", "blue", "fine", "rare")


def rows(count: int = 6000) -> list[list[str]]:
    drawn = random.Random(0)
    found = []
    for number in range(count):
        day = datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=number)
        price = drawn.lognormvariate(2, 1.5)
        words = " ".join(drawn.choice(WORDS) for _ in range(8))
        found.append(
            [
                f"R{number}",
                day.strftime("%Y-%m-%d %H:%M"),
                drawn.choice(['"Köln, ""Süd"""', "Ulm", ""]),
                f"s{drawn.randrange(20_000)}",
                f"0{drawn.randrange(9)}123",
                drawn.choice(["a|b", "b", "", "a|c|b"]),
                f"{words} {number % 3000}",
                f"{price:.2f}",
                "" if drawn.random() < 0.2 else f"{drawn.random():.3f}",
                "x",
                "yes" if drawn.random() < price / (price + 8) else "no",
            ]
        )
    return found


def write(path: Path, delimiter: str = ",", count: int = 6000) -> str:
    lines = [list(KINDS), *rows(count)]
    path.write_text("".join(delimiter.join(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return scan(write(tmp_path_factory.mktemp("table") / "rows.csv"), "--input", processes=1)


def test_kinds(table: Table) -> None:
    found = {name: kind_of(column).value for name, column in table.columns.items()}
    assert found == KINDS
    assert (table.rows, table.bad_rows) == (6000, 0)


def test_a_config_builds_a_model_of_raw_columns(table: Table, tmp_path: Path) -> None:
    config_files(table, "sold", str(tmp_path / "mine.py")).write(overwrite=False)
    task = overrides.load(str(tmp_path / "mine.py")).task
    names = [name for name in KINDS if name not in ("nr", "same", "sold")]
    assert [each.name for each in task.features()] == names
    assert {each.name: each.default for each in task.features()}["weight"] == -1.0
    text = (tmp_path / "mine.py").read_text()
    assert "class_id(['no', 'yes'])" in text
    assert max(map(len, text.splitlines())) <= 100
    assert (tmp_path / "mine_files" / "tags.txt").read_text().split() == ["b", "a", "c"]
    assert (tmp_path / "mine_files" / "town.txt").read_text().split("\n")[0] in (
        'Köln, "Süd"',
        "Ulm",
    )
    with pytest.raises(UserError, match=r"mine\.py is there already; replace it with --overwrite"):
        config_files(table, "sold", str(tmp_path / "mine.py")).write(overwrite=False)


def test_any_name_of_a_label_makes_a_config_that_can_be_read(tmp_path: Path) -> None:
    name = r"profit\Unit"
    lines = [f"{name},a", *(f"{k % 7}.5,{k % 3}" for k in range(200))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    table = scan(str(tmp_path / "rows.csv"), "--input", processes=1)
    config_files(table, name, str(tmp_path / "mine.py")).write(overwrite=False)
    task = overrides.load(str(tmp_path / "mine.py")).task
    assert [label.name for label in task.labels()] == [name]


@pytest.mark.parametrize(
    ("label", "loss", "metrics"),
    [
        ("price", "mse", {"mse", "mae"}),
        ("zip", "sparse_categorical_crossentropy", {"accuracy"}),
        ("sold", "binary_crossentropy", {"auc", "accuracy"}),
    ],
)
def test_the_loss_fits_the_label(
    table: Table, tmp_path: Path, label: str, loss: str, metrics: set[str]
) -> None:
    config_files(table, label, str(tmp_path / "mine.py")).write(overwrite=False)
    task = overrides.load(str(tmp_path / "mine.py")).task
    StatelessModel(task, 0)  # by which the model is built: tables have no matrix here
    assert task.source.compiled["loss"] == loss
    assert set(task.metrics()) == metrics


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("Sold", r"--label=Sold: there is no such column \(there are nr, "),
        ("seller_id", r"--label=seller_id holds [\d,]+ different texts; a label is a number or"),
    ],
)
def test_labels_that_cannot_be_learnt(table: Table, label: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        config_files(table, label, "mine.py")


def test_a_row_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("Ulm,1.5\nBonn,2\n")
    with pytest.raises(UserError, match=r"line 1 names the columns, but '1\.5' is no name; add"):
        scan(str(tmp_path / "rows.csv"), "--input", processes=1)


def test_columns_of_like_names_have_files_of_their_own(tmp_path: Path) -> None:
    drawn = random.Random(0)
    lines = [f"{drawn.choice('ab')},{drawn.choice('xyz')},{k % 2}\n" for k in range(500)]
    (tmp_path / "rows.csv").write_text("home town,home_town,sold\n" + "".join(lines))
    table = scan(str(tmp_path / "rows.csv"), "--input", processes=1)
    config_files(table, "sold", str(tmp_path / "mine.py")).write(overwrite=False)
    text = (tmp_path / "mine.py").read_text()
    for column, file, words in (
        ("home town", "home_town.txt", ["a", "b"]),
        ("home_town", "home_town_1.txt", ["x", "y", "z"]),
    ):
        assert re.search(rf"{column}.*{file}", text)
        assert sorted((tmp_path / "mine_files" / file).read_text().split()) == words


def test_rows_that_are_no_text_are_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"town,sold\n" + b"Ulm,1\nK\xf6ln,0\n" + "Köln,1\n".encode())
    table = scan(str(path), "--input", processes=1)
    assert (table.rows, table.bad_rows) == (2, 1)
    assert sorted(table.columns["town"].frequencies.most(9)) == [("Köln", 1), ("Ulm", 1)]
    path.write_bytes(b"town,sold\nK\xf6ln,0\n")
    with pytest.raises(UserError, match=r"holds no row of UTF-8 text that fits .* \(1 others\)"):
        scan(str(path), "--input", processes=1)
    path.write_bytes(b"St\xe4dte,sold\nUlm,0\n")
    with pytest.raises(UserError, match=r"the names of its columns are no UTF-8 text; convert it"):
        scan(str(path), "--input", processes=1)


def test_of_a_dataset_the_commands_name_it_as_it_is(tmp_path: Path) -> None:
    values = types.SimpleNamespace(output="my config.py", input=str(tmp_path))
    assert [each[0] for each in _commands(values)] == [
        "trainer.prepare",
        "trainer.task",
        "trainer.predict",
    ]
    generate(smoke.get_config(), str(tmp_path), records=10, shards=1)
    train, _ = _commands(values)
    assert f"--data.train={tmp_path}" in train
    assert "--config=my config.py" in train


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("y,z\n1,2\n")
    with pytest.raises(UserError, match=r"b\.csv and .*a\.csv differ in the column x, z"):
        scan(f"{tmp_path}/*.csv", "--input", processes=1)


def test_parquet_and_other_delimiters_show_the_same(table: Table, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows(), columns=list(KINDS)).replace("", None)
    frame["town"] = frame["town"].replace({'"Köln, ""Süd"""': 'Köln, "Süd"'})
    frame["price"] = frame["price"].astype(float)
    frame.to_parquet(tmp_path / "rows.parquet")
    for path in (str(tmp_path / "rows.parquet"), write(tmp_path / "rows.csv", ";")):
        other = scan(path, "--input", processes=1)
        assert {name: kind_of(column).value for name, column in other.columns.items()} == KINDS
        for name, column in other.columns.items():
            assert column.empty == table.columns[name].empty, name
            assert column.frequencies.exact == table.columns[name].frequencies.exact or (
                name == "price"
            )
        assert other.columns["price"].numbers.moments.mean == pytest.approx(
            table.columns["price"].numbers.moments.mean
        )


def test_a_page_draws_each_column(table: Table) -> None:
    found = page(dataclasses.replace(table, data="<rows>.csv"))
    assert "&lt;rows&gt;.csv" in found
    assert "<rows>" not in found
    assert 'Köln, &#34;Süd&#34;</td><td class="bar"><i style="width: ' in found
    assert found.count('<section class="card" style') == len(KINDS) - 2  # without numbers of rows
    assert "<h2>Columns</h2>" in found
    assert "below 0.1</td>" in found


def test_ranges_of_numbers_hold_every_number() -> None:
    column = ColumnSummary("x")
    column.add([str(k) for k in range(1000)] + ["1000000"])
    [(_, bars)] = [_drawn(column)]
    assert [bar.text for bar in bars[:2]] == ["below 100", "100 to 200"]
    assert bars[-1].text == "900 and more"
    assert [round(bar.share, 2) for bar in bars] == [0.1] * 10
    column = ColumnSummary("x")
    column.add(["7"] * 9900 + [str(k) for k in range(1000, 1020)])
    [(_, bars)] = [_drawn(column)]
    assert [(bar.text, bar.share) for bar in bars] == [("below 7", 0.0), ("7 and more", 1.0)]


@pytest.mark.slow
def test_from_a_table_to_predictions_in_four_commands(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.csv")

    def run(program: str, *arguments: str) -> str:
        done = client.run(f"trainer.{program}", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    config, out = str(tmp_path / "mine.py"), tmp_path / "data"
    shown = run("analyze", f"--input={data}", "--label=sold", f"--output={config}")
    assert "seller_id  ids " in shown
    run(
        "prepare",
        f"--config={config}",
        f"--input={data}",
        f"--output={out}",
        "--split=train:0.8,eval:0.2",
        "--shards=2",
    )
    assert manifest.read(str(out / "train"), "").records > 4600
    run(
        "task",
        "--mode.name=local",
        f"--config={config}",
        f"--data.train={out}/train",
        f"--data.eval={out}/eval",
        f"--job_dir={tmp_path}/job",
    )
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    unlabelled = "\n".join(line.rpartition(",")[0] for line in lines)
    (tmp_path / "new.csv").write_text(f"{unlabelled}\n")
    for given in (data, str(tmp_path / "new.csv"), str(out / "eval")):
        run(
            "predict",
            *([] if given == str(out / "eval") else [f"--config={config}"]),
            f"--model={tmp_path}/job/export",
            f"--data={given}",
            f"--output={tmp_path}/out.csv",
            "--overwrite",
        )
        assert "prediction" in (tmp_path / "out.csv").read_text().partition("\n")[0]
