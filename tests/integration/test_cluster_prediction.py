"""A pass over a dataset on a cluster, `--job=predict` and `--job=evaluate`, whoever dies."""

import json
import pathlib

import numpy as np
import pyarrow.parquet as parquet
import pytest
from cluster_process import Program, local_cluster, read_report, trainer_flags

from tfps.experiment.metrics import auc

RECORDS, SHARDS = 60_000, 12
CONFIG = "--config=configs/smoke.py"
pytestmark = pytest.mark.slow


@pytest.fixture(name="trained", scope="module")
def trained_fixture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with data and a job that was trained on 2 ps."""
    directory = tmp_path_factory.mktemp("trained")
    argv = [CONFIG, f"--output={directory / 'data'}", f"--records={RECORDS}", f"--shards={SHARDS}"]
    with Program(*argv, module="trainer.generate") as made:
        assert made.finish() == 0, made.text
    flags = trainer_flags(directory / "data", directory / "job", "--set=train.epochs=1")
    with local_cluster(2, 2, [*flags, f"--eval_data={directory / 'data'}"]) as program:
        assert program.finish() == 0, program.text
    return directory


def flags_of(trained: pathlib.Path, job: str, job_dir: pathlib.Path, *more: str) -> list[str]:
    own = [f"--checkpoint={trained / 'job'}", f"--data={trained / 'data'}"]
    return [CONFIG, f"--job={job}", f"--job_dir={job_dir}", *own, *more]


def rows(job_dir: pathlib.Path) -> dict[str, np.ndarray]:
    """All predictions, by column, in the order of the parts."""
    manifest = json.loads((job_dir / "predictions" / "manifest.json").read_text())
    assert manifest["records"] == RECORDS == sum(part["records"] for part in manifest["parts"])
    tables = [
        parquet.read_table(job_dir / "predictions" / part["file"]) for part in manifest["parts"]
    ]
    assert [len(table) for table in tables] == [part["records"] for part in manifest["parts"]]
    return {
        name: np.concatenate([table[name].to_numpy() for table in tables])
        for name in tables[0].column_names
    }


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


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker 1", "ps 0", "chief 0"])
def test_every_record_is_predicted_once_whoever_dies(
    trained: pathlib.Path, tmp_path: pathlib.Path, victim: str
) -> None:
    flags = flags_of(trained, "predict", tmp_path, "--set=train.batch_size=8")
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
    expected = read_report(trained / "job")["metrics"]["auc"]
    assert auc(found["label"], found["prediction"]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--job=predict", "--data=d"], "--job=predict without --checkpoint: name it"),
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
