import json
import time

import pytest

from tfps.errors import RunError
from tfps.evaluation.history import Evaluation
from trainer.chief.state import Trial


def evaluation(steps, **metrics):
    return Evaluation(f"{steps:012}-000001", steps, 1, 500, metrics, 0.1, {})


def test_metrics_are_written_as_hypertune_writes_them(tmp_path):
    file = tmp_path / "made" / "output.metrics"
    trial = Trial.of({"CLOUD_ML_TRIAL_ID": "7", "CLOUD_ML_HP_METRIC_FILE": str(file)})
    began = time.time()
    trial.report([evaluation(100, loss=0.5, auc=0.75)])
    first = file.read_text()
    trial.report([evaluation(200, loss=0.25)])
    assert file.read_text().startswith(first)
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(began <= entry.pop("timestamp") <= time.time() for entry in entries)
    common = {"trial": "7", "checkpoint_path": ""}
    assert entries == [
        {**common, "global_step": "100", "loss": "0.5"},
        {**common, "global_step": "100", "auc": "0.75"},
        {**common, "global_step": "200", "loss": "0.25"},
    ]


def test_the_newest_hundred_stay(tmp_path):
    trial = Trial("1", str(tmp_path / "file"))
    trial.report(evaluation(steps, loss=1.0) for steps in range(250))
    entries = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    assert [entry["global_step"] for entry in entries] == [str(n) for n in range(150, 250)]


def test_what_is_no_number_is_not_reported(tmp_path, caplog):
    trial = Trial("1", str(tmp_path / "file"))
    trial.report([evaluation(1, loss=float("nan"), auc=0.5)])
    assert "loss is nan: trial 1 does not report it" in caplog.text
    assert "NaN" not in (tmp_path / "file").read_text()


def test_a_run_of_ones_own_is_no_trial(tmp_path):
    assert Trial.of({"CLOUD_ML_HP_METRIC_FILE": str(tmp_path / "file")}) is None


def test_a_file_that_cannot_be_written_ends_the_run():
    with pytest.raises(RunError, match="set CLOUD_ML_HP_METRIC_FILE to a file"):
        Trial("1", "/dev/null/file").report([evaluation(1, loss=1.0)])
