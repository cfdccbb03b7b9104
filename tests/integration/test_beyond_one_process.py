"""A table of 6 GiB where no process may have more than 3, from its training to its predictions."""

import json
import pathlib
import re
import resource
import subprocess
import sys

import numpy as np
import pyarrow.parquet as parquet
import pytest
from cluster_process import Program, local_cluster, read_report

from tests.export.test_saved_model import LOAD
from tfps.experiment.metrics import auc

LIMIT = 3 << 30  # of what a process may write to, its threads' stacks included
STACK = 1 << 20  # of a thread, of which each process has some hundred, and uses next to nothing
PATIENCE = 1200
CONFIG = "--config=tests/large_table.py"
RECORDS = 2000
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(2 * PATIENCE)]


def finish_within_limit(program: Program) -> str:
    """Lets a program, and all that it starts from now on, have so much memory and no more."""
    with program:
        resource.prlimit(program.pid, resource.RLIMIT_STACK, (STACK, STACK))
        resource.prlimit(program.pid, resource.RLIMIT_DATA, (LIMIT, LIMIT))
        assert program.finish(PATIENCE) == 0, program.text
    return program.text


def predictions(model: pathlib.Path, shard: pathlib.Path) -> np.ndarray:
    """What TensorFlow alone, with all the memory there is, predicts of a shard."""
    command = [sys.executable, "-c", LOAD, str(model), str(shard)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=model, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    return np.array(json.loads(done.stdout)[0], "f4")


def test_what_four_ps_hold_together_no_process_has_to(tmp_path: pathlib.Path) -> None:
    generate = [CONFIG, f"--output={tmp_path / 'data'}", f"--records={RECORDS}", "--shards=1"]
    with Program(*generate, module="trainer.generate") as made:
        assert made.finish(PATIENCE) == 0, made.text
    data, job_dir = tmp_path / "data", tmp_path / "job"
    flags = [CONFIG, f"--data.train={data}", f"--data.eval={data}", f"--job_dir={job_dir}"]
    said = finish_within_limit(local_cluster(2, 4, flags, loads=True))
    report = read_report(job_dir)
    assert report["examples"]["trained"] == RECORDS, said
    exported = pathlib.Path(report["export"])
    values = sum(path.stat().st_size for path in (exported / "variables").iterdir())
    assert values > 6 << 30

    again = tmp_path / "again"
    argv = [f"--checkpoint={job_dir}", CONFIG, f"--output={again}", f"--data={data}"]
    finish_within_limit(Program(*argv, module="trainer.export", loads=True))

    [shard] = data.glob("*.tfrecord")
    found, offline = predictions(exported, shard), predictions(again, shard)
    np.testing.assert_allclose(offline, found, rtol=0, atol=1e-6)
    assert auc(labels(shard), found) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
    assert re.search(r"exported the model of \S+ to ", said)

    own = [CONFIG, f"--checkpoint={job_dir}", f"--data={data}"]
    predict = [*own, "--job=predict", f"--job_dir={tmp_path / 'predicted'}"]
    finish_within_limit(local_cluster(2, 4, predict, loads=True))
    [part] = (tmp_path / "predicted" / "predictions").glob("part-*.parquet")
    on_cluster = parquet.read_table(part)["prediction"].to_numpy()
    np.testing.assert_allclose(on_cluster, found, rtol=0, atol=1e-6)

    evaluate = [*own, "--job=evaluate", f"--job_dir={tmp_path / 'evaluated'}"]
    finish_within_limit(local_cluster(1, 4, evaluate, loads=True))
    evaluated = read_report(tmp_path / "evaluated")
    assert evaluated["metrics"] == pytest.approx(report["metrics"], abs=1e-6)


def labels(shard: pathlib.Path) -> np.ndarray:
    import tensorflow as tf

    parsed = tf.io.parse_example(
        list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()),
        {"label": tf.io.FixedLenFeature([], tf.int64)},
    )
    return parsed["label"].numpy()
