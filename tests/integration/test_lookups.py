"""A model whose layers look things up in tables, on a cluster: trained, evaluated, exported."""

import pathlib

import pytest
from cluster_process import Program, local_cluster, read_report

from tests.lookups import write_rows

CONFIG = "--config=tests/lookups.py"


@pytest.mark.slow
def test_tables_are_found_on_every_worker(tmp_path: pathlib.Path) -> None:
    for name, rows, seed in (("train", 600, 0), ("eval", 200, 1)):
        path = write_rows(tmp_path / f"{name}.csv", rows, seed)
        flags = [CONFIG, f"--input={path}", f"--output={tmp_path / name}", "--shards=3"]
        with Program(*flags, module="trainer.prepare") as program:
            assert program.finish() == 0, program.text
    job, data = tmp_path / "job", tmp_path / "eval"
    flags = [f"--data.train={tmp_path / 'train'}", f"--data.eval={data}", f"--job_dir={job}"]
    with local_cluster(2, 2, [CONFIG, *flags]) as cluster:
        assert cluster.finish() == 0, cluster.text
    report = read_report(job)
    assert report["examples"]["trained"] == 8 * 600
    assert report["examples"]["skipped"] == 0
    # The label follows from town, text and code together, which only tables tell apart.
    assert report["metrics"]["auc"] > 0.97
    argv = [f"--model={report['export']}", f"--data={data}", f"--output={tmp_path / 'p.csv'}"]
    with Program(*argv, module="trainer.predict") as program:
        assert program.finish() == 0, program.text
    [shown] = [line for line in program.lines if line.startswith("AUC: ")]
    assert float(shown.split()[1]) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
