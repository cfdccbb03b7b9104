"""A model with layers of every kind: the same in one process and on a cluster of one worker."""

import csv
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cluster_process import Program, local_cluster, read_report

CONFIG = "tests/integration/every_layer.py"
RECORDS, STEPS = 48, 12  # one batch, so one step per epoch
TOLERANCE = 1e-5


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("shop") / "data"
    flags = [f"--config={CONFIG}", f"--records={RECORDS}", "--shards=1", f"--output={path}"]
    with Program(*flags, module="trainer.generate") as program:
        assert program.finish() == 0, program.text
    return path


def losses(report: dict[str, Any]) -> list[float]:
    return [evaluation["loss"] for evaluation in report["evaluations"]]


def predictions(export: str, data: pathlib.Path) -> dict[str, np.ndarray]:
    model = tf.saved_model.load(export)
    records = tf.stack(list(tf.data.TFRecordDataset(str(next(data.glob("*.tfrecord"))))))
    found = model.signatures["serving_examples"](examples=records)
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.slow
def test_every_step_and_the_export_are_the_same_on_a_cluster(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    flags = [f"--config={CONFIG}", f"--data.train={data}", f"--data.eval={data}"]
    with (
        local_cluster(1, 2, [*flags, f"--job_dir={tmp_path / 'cluster'}"]) as cluster,
        Program(*flags, f"--job_dir={tmp_path / 'local'}", "--mode.name=local") as local,
    ):
        assert local.finish() == 0, local.text
        assert cluster.finish() == 0, cluster.text
    ours, theirs = read_report(tmp_path / "cluster"), read_report(tmp_path / "local")
    assert ours["steps"] == theirs["steps"] == STEPS
    # Doubled after every fifth step.
    assert ours["loss_scale"] == theirs["loss_scale"] == {"scale": 4096.0, "skipped_steps": 0}
    assert len(losses(ours)) == STEPS
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=0, atol=TOLERANCE)
    assert losses(ours)[-1] < losses(ours)[0] - 0.1
    metrics = {"loss", "clicked_auc", "clicked_keras_auc", "bought_accuracy"}
    assert set(ours["metrics"]) == metrics
    for name in metrics:
        assert ours["metrics"][name] == pytest.approx(theirs["metrics"][name], abs=TOLERANCE)

    on_cluster, at_home = (predictions(report["export"], data) for report in (ours, theirs))
    assert set(on_cluster) == {"clicked", "bought"}
    for name, values in on_cluster.items():
        assert values.shape == (RECORDS,)
        np.testing.assert_allclose(values, at_home[name], rtol=0, atol=TOLERANCE)

    output = tmp_path / "predictions.csv"
    argv = [f"--model={ours['export']}", f"--data={data}", f"--output={output}"]
    with Program(*argv, module="trainer.predict") as program:
        assert program.finish() == 0, program.text
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["label_clicked", "label_bought", "label_weight"]
    for name, values in on_cluster.items():
        served = np.array([float(row[f"prediction_{name}"]) for row in rows], np.float32)
        np.testing.assert_array_equal(served, values)
