"""A job whose model turns out, at its end, not to be exported."""

import pathlib

import numpy as np
import pytest
from cluster_process import Program, checkpoints, local_cluster

import tfps
from tests import strict_task
from tfps.export.loaded_model import ExportedModel

RECORDS = 200


def program_for(flags: list[str], is_cluster: bool, **environ: str) -> Program:
    return (
        local_cluster(2, 1, flags, environ=environ)
        if is_cluster
        else Program(*flags, environ=environ)
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_cluster", [False, True], ids=["one process", "cluster"])
def test_what_was_trained_is_kept_and_exported_by_the_same_command(
    tmp_path: pathlib.Path, is_cluster: bool
) -> None:
    draw, data, job = np.random.default_rng(0), tmp_path / "data", tmp_path / "job"
    x, y = draw.random((RECORDS, 3), np.float32), draw.random(RECORDS, np.float32)
    features, label = strict_task.FEATURES, strict_task.LABEL
    tfps.write_dataset(str(data), {"x": x}, {"y": y}, features=features, label=label, shards=4)
    flags = ["--config=tests/strict_task.py", f"--data.train={data}", f"--job_dir={job}"]

    with program_for(flags, is_cluster) as program:
        assert program.finish() == 3, program.text
    [error] = program.errors
    assert "the model cannot be exported, since it fails on the first records of" in error
    assert "too large to predict" in error
    [kept] = checkpoints(job)
    assert not (job / "export").exists()

    with program_for(flags, is_cluster, **{strict_task.MENDED: "1"}) as program:
        assert program.finish() == 0, program.text
    assert checkpoints(job) == [kept]  # nothing was trained again
    predictions = ExportedModel.load(str(job / "export")).predict({"x": x[:5]})
    assert np.isfinite(predictions["predictions"]).all()
