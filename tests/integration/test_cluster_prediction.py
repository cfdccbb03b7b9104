"""A pass over a dataset on a cluster, `--job=predict` and `--job=evaluate`, whoever dies."""

import contextlib
import json
import pathlib
import random
import time
from typing import Any

import numpy as np
import psutil
import pyarrow
import pyarrow.parquet as parquet
import pytest
import tensorflow as tf
from cluster_process import PATIENCE, Program, local_cluster, read_report, trainer_flags

from tests.loaded import client
from tfps.data import manifest as manifests
from tfps.experiment.metrics import auc

RECORDS, MILLION, SHARDS = 60_000, 1_000_000, 12
CONFIG = "--config=configs/smoke.py"
pytestmark = pytest.mark.slow


@pytest.fixture(name="trained", scope="module")
def trained_fixture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with data and a job that was trained on 2 ps."""
    return train(tmp_path_factory.mktemp("trained"), RECORDS)


def train(directory: pathlib.Path, records: int, *more: str) -> pathlib.Path:
    argv = [CONFIG, f"--output={directory / 'data'}", f"--records={records}", f"--shards={SHARDS}"]
    with Program(*argv, module="trainer.generate") as made:
        assert made.finish(6 * PATIENCE) == 0, made.text
    flags = trainer_flags(directory / "data", directory / "job", "--train.epochs=1", *more)
    with local_cluster(2, 2, [*flags, f"--data.eval={directory / 'data'}"]) as program:
        assert program.finish() == 0, program.text
    return directory


def flags_of(trained: pathlib.Path, job: str, job_dir: pathlib.Path, *more: str) -> list[str]:
    own = [f"--checkpoint={trained / 'job'}", f"--data={trained / 'data'}"]
    return [CONFIG, f"--job={job}", f"--job_dir={job_dir}", *own, *more]


def rows(job_dir: pathlib.Path, records: int = RECORDS) -> dict[str, np.ndarray]:
    """All predictions, by column, in the order of the parts."""
    directory = job_dir / "predictions"
    manifest = json.loads((directory / "manifest.json").read_text())
    parts = manifest["parts"]
    assert manifest["records"] == records == sum(part["records"] for part in parts)
    paths = [directory / part["file"] for part in parts]
    assert [path.stat().st_size for path in paths] == [part["bytes"] for part in parts]
    found = [READERS[path.suffix](path) for path in paths]
    assert [len(each["prediction"]) for each in found] == [part["records"] for part in parts]
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def parquet_columns(path: pathlib.Path) -> dict[str, np.ndarray]:
    table = parquet.read_table(path).combine_chunks()
    found = {name: table[name].combine_chunks() for name in table.column_names}
    return {
        name: column.flatten().to_numpy().reshape(len(column), -1)
        if pyarrow.types.is_list(column.type)
        else column.to_numpy()
        for name, column in found.items()
    }


def csv_columns(path: pathlib.Path) -> dict[str, np.ndarray]:
    with path.open() as file:
        names = file.readline().strip().split(",")
        values = np.loadtxt(file, np.float64, delimiter=",")
    found = dict(zip(names, values.T, strict=True))
    numbers = np.stack([found.pop(f"numbers_{k}") for k in range(4)], 1)
    return {"numbers": numbers.astype("f4"), **found}


def record_columns(path: pathlib.Path) -> dict[str, np.ndarray]:
    wanted = {**COLUMNS, "prediction": tf.io.FixedLenFeature([], tf.float32)}
    return parsed([path], wanted)


READERS = {".parquet": parquet_columns, ".csv": csv_columns, ".tfrecord": record_columns}
COLUMNS = {
    "numbers": tf.io.FixedLenFeature([4], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parsed(paths: list[pathlib.Path], columns: dict[str, Any]) -> dict[str, np.ndarray]:
    """Columns of the records of some files, in their order."""
    records = tf.data.TFRecordDataset([str(path) for path in paths]).batch(10_000)
    batches = [tf.io.parse_example(batch, columns) for batch in records]
    return {name: np.concatenate([batch[name].numpy() for batch in batches]) for name in columns}


def check_identity(found: dict[str, np.ndarray], data: pathlib.Path) -> None:
    """Sees that each row is that of the record in its place, which four numbers tell from all."""
    shards = manifests.read(str(data), "--data").shards
    expected = parsed([data / shard.file for shard in shards], COLUMNS)
    assert len(np.unique(expected["numbers"].view("V16"))) == len(expected["numbers"])
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_cluster_of_any_size_predicts_what_was_evaluated(
    trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with local_cluster(2, 1, flags_of(trained, "predict", tmp_path, "--keep=token")) as program:
        assert program.finish() == 0, program.text
    found, report = rows(tmp_path), read_report(tmp_path)
    assert (report["status"], report["predictions"]) == (
        "finished",
        str(tmp_path / "predictions"),
    )
    expected = read_report(trained / "job")["metrics"]
    assert auc(found["label"], found["prediction"]) == pytest.approx(expected["auc"], abs=1e-6)
    assert set(found) == {"token", "label", "prediction"}
    assert set(found["token"]) <= set(range(20))

    argv = flags_of(trained, "evaluate", tmp_path / "evaluated")
    with Program(*argv, module="trainer.task") as program:
        assert program.finish() == 0, program.text
    report = read_report(tmp_path / "evaluated")
    assert report["metrics"] == pytest.approx(expected, abs=1e-6)


def test_records_without_labels_are_predicted_alike(
    trained: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """On a cluster, and by the model that was exported."""
    argv = [CONFIG, f"--data={bare_records(trained, tmp_path)}", "--without_labels"]
    with Program(*argv, module="trainer.index") as program:
        assert program.finish() == 0, program.text
    own = [CONFIG, f"--checkpoint={trained / 'job'}", f"--data={tmp_path / 'data'}"]
    flags = [*own, "--job=predict", f"--job_dir={tmp_path / 'job'}", "--keep=token"]
    with local_cluster(2, 1, flags) as program:
        assert program.finish() == 0, program.text
    table = parquet.read_table(tmp_path / "job" / "predictions" / "part-00000-of-00001.parquet")
    assert table.column_names == ["token", "prediction"]
    output = tmp_path / "scores.parquet"
    model = [f"--model={trained / 'job' / 'export'}", f"--data={tmp_path / 'data'}"]
    with Program(*model, f"--output={output}", module="trainer.predict") as program:
        assert program.finish() == 0, program.text
    assert "AUC: not known without labels" in program.text
    scores = parquet.read_table(output)
    assert scores.column_names == ["prediction"]
    np.testing.assert_allclose(scores["prediction"], table["prediction"], rtol=0, atol=1e-6)

    evaluate = [*own, "--job=evaluate", f"--job_dir={tmp_path / 'evaluated'}"]
    with Program(*evaluate, module="trainer.task") as program:
        assert program.finish() == 2
    assert "--data=" in program.text
    assert "label 'label' is not in the data" in program.text


def bare_records(trained: pathlib.Path, directory: pathlib.Path) -> pathlib.Path:
    """A directory with the records of one shard, less their labels."""
    shard = sorted((trained / "data").glob("*.tfrecord"))[0]
    (directory / "data").mkdir()
    with tf.io.TFRecordWriter(str(directory / "data" / "bare.tfrecord")) as writer:
        for record in tf.data.TFRecordDataset(str(shard)).as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            del example.features.feature["label"]
            writer.write(example.SerializeToString())
    return directory / "data"


@pytest.mark.parametrize("form", ["csv", "tfrecord"])
def test_parts_may_have_other_forms(
    trained: pathlib.Path, tmp_path: pathlib.Path, form: str
) -> None:
    flags = flags_of(trained, "predict", tmp_path, "--keep=numbers", f"--output_form={form}")
    with local_cluster(2, 1, flags) as program:
        assert program.finish() == 0, program.text
    found = rows(tmp_path)
    check_identity(found, trained / "data")
    expected = read_report(trained / "job")["metrics"]["auc"]
    scores = found["prediction"].astype("f4")
    assert auc(found["label"], scores) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("victim", ["worker 1", "ps 0", "chief 0"])
def test_every_record_is_predicted_once_whoever_dies(
    trained: pathlib.Path, tmp_path: pathlib.Path, victim: str
) -> None:
    flags = flags_of(trained, "predict", tmp_path, "--batch_size=8", "--keep=numbers")
    with local_cluster(2, 2, flags) as program:
        program.see("with the parameters of")
        while not list((tmp_path / "predictions").glob("part-00001*")):
            pass
        program.tasks()[victim].kill()
        code = program.finish()
    if victim == "chief 0" and code:
        with local_cluster(2, 2, flags) as program:
            assert program.finish() == 0, program.text
            assert "records are predicted already" in program.text
    else:
        assert code == 0, program.text
    found = rows(tmp_path)
    check_identity(found, trained / "data")
    expected = read_report(trained / "job")["metrics"]["auc"]
    assert auc(found["label"], found["prediction"]) == pytest.approx(expected, abs=1e-6)


def test_a_pass_continues_with_another_size(trained: pathlib.Path, tmp_path: pathlib.Path) -> None:
    flags = flags_of(trained, "predict", tmp_path, "--batch_size=8", "--keep=numbers")
    with local_cluster(1, 1, flags) as program:
        program.see("with the parameters of")
        while not list((tmp_path / "predictions").glob("part-00001*")):
            pass
        asked = (f"--job_dir={tmp_path}", "--workers=2", "--ps=2", "--wait_seconds=110")
        done = client.run("trainer.resize", *asked, timeout=150.0)
        assert done.returncode == 0, done.stderr
        assert "the run has begun with 2 workers and 2 ps, after " in done.stdout
        program.see("records are predicted already")
        assert program.finish() == 0, program.text
    check_identity(rows(tmp_path), trained / "data")


@pytest.mark.timeout(900)
def test_a_million_records_with_a_kill_of_each_role(tmp_path: pathlib.Path) -> None:
    """Who is killed first, and after how many parts, is drawn."""
    draw = random.Random(0)
    victims = draw.sample(["worker", "ps", "chief"], 3)
    moments = sorted(draw.sample(range(SHARDS - 1), 3))
    directory = train(tmp_path, MILLION, "--train.batch_size=512")
    flags = flags_of(
        directory, "predict", tmp_path / "predicted", "--batch_size=32", "--keep=numbers"
    )
    pending = list(zip(moments, victims, strict=True))
    predictions = tmp_path / "predicted" / "predictions"
    code = -1
    while code:
        with local_cluster(2, 2, flags) as program:
            program.see("with the parameters of")
            while pending and not program.has_ended:
                moment, role = pending[0]
                name = f"{role} {draw.randrange(1 if role == 'chief' else 2)}"
                if len(list(predictions.glob("part-*.parquet"))) > moment:
                    with contextlib.suppress(KeyError, psutil.NoSuchProcess):  # it is about to come
                        program.tasks()[name].kill()
                        pending.pop(0)
                time.sleep(0.01)
            code = program.finish()
        # Who gives the command again, as after the chief's death, continues.
        assert not code or ("chief" not in dict(map(reversed, pending))), program.text
    assert not pending
    found = rows(tmp_path / "predicted", MILLION)
    check_identity(found, directory / "data")
    expected = read_report(directory / "job")["metrics"]["auc"]
    assert auc(found["label"], found["prediction"]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--job=predict", "--data=d"], "--job=predict without --checkpoint: name it"),
        (
            ["--job=evaluate", "--data=d", "--checkpoint=c", "--batch_size=8"],
            "--batch_size is for --job=predict; leave it out",
        ),
        (["--keep=token"], "--keep is for --job=evaluate or predict; leave it out"),
        (
            ["--job=predict", "--data=d", "--checkpoint=runs/job/checkpoints/1"],
            "--job_dir=runs/job is that of --checkpoint=runs/job/checkpoints/1: a pass is a job",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(flags: list[str], message: str) -> None:
    with Program(CONFIG, "--job_dir=runs/job", *flags) as program:
        assert program.finish() == 2
    assert message in program.text


def test_a_pass_chooses_no_size(tmp_path: pathlib.Path) -> None:
    own = ["--job=predict", "--data=d", "--checkpoint=c", f"--job_dir={tmp_path}"]
    with local_cluster(1, 1, [CONFIG, *own, "--autoscale=1:4"]) as program:
        assert program.finish() == 2
    assert "--autoscale is for --job=train; leave it out" in program.text
