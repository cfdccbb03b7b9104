from tests.job_dir.reports import full_report
from tests.loaded import client
from tfps.job_dir import JobDir, report
from tfps.job_dir.report import RUNNING
from trainer.console.text_table import job_summary


def run(job_dir):
    return client.run("trainer.report", str(job_dir))


def test_the_summary_says_what_was_trained_how_fast_and_how_well():
    text = "\n".join(job_summary("job", full_report()))
    for part in ("2 workers, 3 ps", "2,000 records", "5 repeated, 7 bad", "54,321 examples/s"):
        assert part in text
    assert "AUC        0.8100 (the planted signal allows 0.8400)" in text
    assert "worker 1" in text
    assert "42.0% to 58.0% of the records each, idle 5.0% of the time" in text
    assert "best       of 2 evaluations by auc: auc 0.8200, loss 0.3000 (epoch 1, 20 steps)" in text
    assert "stopped    early: auc has not become better" in text
    assert "export     job/export/3\n" in text
    assert "began with other/checkpoints/7" in text
    assert "best model job/export_best/2" in text


def test_what_a_run_does_not_have_is_left_out():
    without = full_report(best_evaluation=None, stopped_early=None, best_auc=None, export_best=None)
    text = "\n".join(job_summary("job", without))
    assert "best" not in text
    assert "stopped" not in text
    assert "AUC        0.8100" in text


def test_the_command_reads_a_report_and_refuses_a_directory_without_one(tmp_path):
    report.write(JobDir(tmp_path), full_report(status=RUNNING))
    printed = run(tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("job        criteo, running")
    missing = run(tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "holds no report.json" in missing.stderr


def test_a_page_needs_a_file_to_be_written_again(tmp_path):
    refused = client.run("trainer.report", str(tmp_path), "--follow=5")
    assert refused.returncode == 2
    assert refused.stderr.endswith("name its file with --output=report.html\n")
