from tests.loaded import client
from tfps.job_dir import report
from tfps.job_dir.chief_fence import ChiefFence
from trainer.summary import lines

FIELDS = {
    "config": "criteo",
    "mode": "async",
    "cluster": {"workers": 2, "ps": 3},
    "workers": [
        {"leases": 3, "records": 420, "seconds": 9.0, "idle_seconds": 0.5},
        {"leases": 5, "records": 580, "seconds": 10.0, "idle_seconds": 0.5},
    ],
    "examples": {"per_epoch": 1000, "trained": 2000, "skipped": 0, "repeated": 5, "bad": 7},
    "epochs": 2,
    "steps": 40,
    "seconds": 12.4,
    "examples_per_second": 54321.0,
    "metrics": {"auc": 0.81, "loss": 0.4},
    "evaluations": [
        {"epoch": 1, "steps": 20, "auc": 0.82, "loss": 0.3},
        {"epoch": 2, "steps": 40, "auc": 0.81, "loss": 0.4},
    ],
    "best_evaluation": {"metric": "auc", "epoch": 1, "steps": 20, "auc": 0.82, "loss": 0.3},
    "stopped_early": "auc has not become better",
    "best_auc": 0.84,
    "failures": [{"task": "worker 1", "what": "its port refused connections"}],
    "checkpoint": "job/checkpoints/1",
    "export": "job/export",
    "export_best": "job/export_best",
}


def run(job_dir):
    return client.run("trainer.summary", f"--job_dir={job_dir}")


def test_the_summary_says_what_was_trained_how_fast_and_how_well():
    text = "\n".join(lines("job", {**FIELDS, "status": "finished"}))
    for part in ("2 workers, 3 ps", "2,000 records", "5 repeated, 7 bad", "54,321 examples/s"):
        assert part in text
    assert "AUC        0.8100 (the planted signal allows 0.8400)" in text
    assert "worker 1" in text
    assert "42.0% to 58.0% of the records each, idle 5.0% of the time" in text
    assert "best       of 2 evaluations by auc: auc 0.8200, loss 0.3000 (epoch 1, 20 steps)" in text
    assert "stopped    early: auc has not become better" in text
    assert "export     job/export\n" in text
    assert "best model job/export_best" in text


def test_a_report_of_an_earlier_version_has_no_best():
    earlier = {name: value for name, value in FIELDS.items() if "best" not in name}
    del earlier["stopped_early"]
    text = "\n".join(lines("job", {**earlier, "best_auc": None, "status": "finished"}))
    assert "best" not in text
    assert "AUC        0.8100" in text


def test_the_command_reads_a_report_and_refuses_a_directory_without_one(tmp_path):
    report.Report(str(tmp_path), ChiefFence(str(tmp_path)), **FIELDS).write()
    printed = run(tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("job        criteo, running")
    missing = run(tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "holds no report.json" in missing.stderr
