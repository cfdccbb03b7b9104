"""The commands of Slurm that the target runs."""

import pytest

from cloud import submit
from tests.cloud.slurm import stand_in

TASKS = ["--workers=2", "--ps=1", "--", "--config=configs/smoke.py", "--job_dir=/jobs/x"]


@pytest.fixture(name="slurm")
def slurm_fixture(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    stand_in.install(tmp_path)
    return tmp_path


@pytest.fixture(name="at_once")
def at_once_fixture(monkeypatch):
    """Nothing is waited for between tries."""
    monkeypatch.setattr("cloud.target._WAITS", (0.0, 0.0))


def run(*argv):
    return submit.main(["submit", *argv])


def test_the_script_that_is_printed_is_the_script_that_is_sent(slurm, capfd):
    assert run("--target=slurm", "--dry_run", *TASKS) == 0
    printed = capfd.readouterr().out
    assert run("--target=slurm", *TASKS) == 0
    assert capfd.readouterr().out.splitlines() == [
        "submitted 4711",
        "follow: python -m cloud.submit follow 4711 --target=slurm",
        "cancel: python -m cloud.submit cancel 4711 --target=slurm",
    ]
    assert (slurm / "submitted").read_text() == printed


def test_a_job_is_followed_to_its_end(slurm, capfd):
    (slurm / "state").write_text("RUNNING\nRUNNING\nCOMPLETED")  # it looks twice a time
    (slurm / "criteo-4711.log").write_text("one\ntwo\nhalf a li")
    (slurm / "written-in-between").write_text("ne\n")
    (slurm / "criteo-4711-worker-1.log").write_text("serves\n")
    (slurm / "criteo-47112.log").write_text("of another job\n")
    assert run("follow", "4711", "--target=slurm", "--poll_seconds=0.02") == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("[submit]")] == [
        "[submit] job 4711 (criteo): RUNNING",
        "[submit] job 4711 (criteo): COMPLETED",
    ]
    assert [line for line in lines if not line.startswith("[submit]")] == [
        "[worker 1] serves",
        "[chief] one",
        "[chief] two",
        "[chief] half a line",
    ]


def test_a_job_that_failed_ends_with_3(slurm, capfd):
    (slurm / "state").write_text("TIMEOUT")
    assert run("follow", "4711", "--target=slurm", "--poll_seconds=0.02") == 3
    assert "error: 4711: TIMEOUT: exit code 0; see criteo-4711.log" in capfd.readouterr().err


def test_a_controller_that_is_away_for_a_while_is_asked_again(slurm, capfd, at_once):
    (slurm / "state").write_text("RUNNING\nCOMPLETED")
    (slurm / "criteo-4711.log").write_text("one\n")
    (slurm / "away").write_text("2")
    assert run("follow", "4711", "--target=slurm", "--poll_seconds=0.02") == 0
    assert "[chief] one" in capfd.readouterr().out.splitlines()


def test_a_controller_that_stays_away_ends_no_job(slurm, capfd, at_once):
    (slurm / "away").write_text("3")
    assert run("follow", "4711", "--target=slurm") == 3
    error = capfd.readouterr().err
    assert "error: `scontrol show job 4711`: slurm_load_jobs error: Unable to contact" in error
    assert "is Slurm up? (`scontrol ping`); the job continues; follow it with" in error


def test_a_job_is_sent_once_only_if_the_controller_is_away(slurm, capfd, at_once):
    (slurm / "away").write_text("1")
    assert run("--target=slurm", *TASKS) == 3
    assert "error: `sbatch --parsable`: slurm_load_jobs error" in capfd.readouterr().err
    assert not (slurm / "submitted").exists()


def test_only_jobs_of_this_program_are_listed(slurm, capfd):
    assert run("list", "--target=slurm") == 0
    out = capfd.readouterr().out
    assert "RUNNING" in out
    assert "criteo  4711" in out
    assert "4710" not in out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["cancel", "12", "--target=slurm"], 2, "Kill job error on job id 12: Invalid job id"),
        (["cancel", "all", "--target=slurm"], 2, "'all' is no job of Slurm"),
        (["follow", "12", "--target=slurm"], 2, "`scontrol show job 12`: slurm_load_jobs error"),
        (["--target=slurm", "--volume=a:/b", *TASKS], 2, "--volume is of --target=jobset"),
        (["--target=jobset", "--nodes=2", *TASKS], 2, "--nodes is of --target=slurm, not jobset"),
        (["--target=slurm", "--nodes=-1", *TASKS], 2, "--nodes"),
        (["--target=slurm", "--image=i", *TASKS], 2, "takes no --image"),
    ],
)
def test_wrong_commands_send_nothing(slurm, capfd, argv, code, message):
    assert run(*argv) == code
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("error: ")
    assert message in error
    assert not (slurm / "submitted").exists()


def test_without_slurm_its_place_is_named(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("--target=slurm", *TASKS) == 2
    assert "sbatch is not on this machine: submit on a login node" in capfd.readouterr().err
