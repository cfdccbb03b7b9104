"""`trainer.plan`, from a history that is known."""

import pytest

from tests.loaded import client, started
from tests.planner.histories import run_of
from tests.trainer.page import jobs
from tests.training_fixtures import dataset

LIST = "type,cpus,memory,network_gbit,price_per_hour\nsmall,4,8GiB,10,0.2\n"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=4000, shards=2)


def planned(job_dir, *flags):
    return client.run("trainer.plan", f"--job_dir={job_dir}", *flags)


@pytest.fixture(scope="module")
def job_dir(tmp_path_factory):
    return jobs.write(tmp_path_factory.mktemp("jobs") / "job", run_of(workers=2, ps=1))


def test_it_says_what_bounded_the_run_and_how_fast_others_are(job_dir):
    done = planned(job_dir)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith(
        "c, 2 workers and 1 ps in mode async on one machine of 2 cores: 20,000 examples/s"
    )
    assert "of 512 examples: 30.7 ms of CPU of its worker, 7.7 of the ps" in lines[1]
    assert lines[2].startswith("bound    The cores of their machine, busy 78% of the time")
    table = done.stdout.split("\n\n")[1].splitlines()
    assert " ".join(table[0].split()) == (
        "workers ps examples/s between staleness a ps holds bounded by"
    )
    assert table[1].split()[:6] == ["2", "1", "20,000", "17,391", "to", "23,000"]
    assert [line.split()[:2] for line in table[2:]] == [
        ["3", "1"],
        ["4", "1"],
        ["2", "2"],
        ["4", "2"],
    ]
    assert len(done.stdout.split("\n\n")) == 2


def test_it_forecasts_the_size_that_is_asked_for(job_dir):
    done = planned(job_dir, "--workers=6", "--ps=2")
    assert done.stdout.split("\n\n")[1].splitlines()[1].split()[:2] == ["6", "2"]


@pytest.mark.parametrize(
    "wanted", ["--examples_per_second=60000", f"--deadline_hours={2000 / 60000 / 3600}"]
)
def test_it_offers_the_cheapest_machines_and_how_to_submit(job_dir, wanted, tmp_path):
    (tmp_path / "mine.csv").write_text(LIST)
    done = planned(job_dir, wanted, f"--machines={tmp_path / 'mine.csv'}")
    assert done.returncode == 0, done.stderr
    offer, command = done.stdout.split("\n\n")[2:]
    title, _, first = offer.splitlines()
    assert title == "cheapest for 60,000 examples/s, a machine for each task"
    workers, name, ps = first.split()[:3]
    assert name == "small"
    assert f"--workers={workers} --ps={ps}" in command
    assert "--machine=worker:type=small" in command


def test_where_no_machines_are_fast_enough_it_says_so(job_dir):
    done = planned(job_dir, "--examples_per_second=1e12")
    assert done.returncode == 0
    assert "No cluster of these machines is expected to reach 1,000,000,000,000" in done.stdout


@pytest.mark.slow
def test_a_job_that_never_ran_is_trained_for_a_minute_first(manifest, tmp_path):
    job = ["--config=configs/smoke.py", f"--data.train={manifest.directory}"]
    kept = tmp_path / "job"
    flags = ["--workers=2", "--ps=2", "--", *job, "--train.epochs=100000", "--train.batch_size=64"]
    done = client.run("trainer.plan", str(kept), *flags, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "smoke, 1 worker and 1 ps in mode async on one machine" in done.stdout
    assert done.stdout.split("\n\n")[1].splitlines()[1].split()[:2] == ["2", "2"]
    assert not list(started.processes_with(f"--job_dir={kept}"))
    again = planned(kept)
    assert again.stdout.split("\n\n")[0] == done.stdout.split("\n\n")[0]


@pytest.mark.slow
def test_a_job_that_cannot_be_trained_is_no_plan(manifest):
    job = ["--config=configs/smoke.py", f"--data.train={manifest.directory}"]
    done = client.run("trainer.plan", "--", *job, "--train.batch_size=0")
    assert done.returncode == 2
    assert "train.batch_size" in done.stderr
    assert "the job ended with exit code 2; its log is above" in done.stderr


def test_a_job_that_has_run_is_not_measured_again(job_dir):
    done = client.run("trainer.plan", "--", f"--job_dir={job_dir}")
    assert done.returncode == 2
    assert "name the job's directory before --" in done.stderr
    done = client.run("trainer.plan", str(job_dir), "--", "--config=configs/smoke.py")
    assert done.returncode == 2
    assert "has a run already: leave out what stands behind --" in done.stderr


@pytest.mark.slow
def test_a_job_that_is_too_short_is_no_plan(manifest):
    job = ["--config=configs/smoke.py", f"--data.train={manifest.directory}"]
    done = client.run("trainer.plan", "--", *job)
    assert done.returncode == 2
    assert "give it more epochs: --train.epochs" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--examples_per_second=5", "--deadline_hours=1"], "ask the same; give one of them"),
        (["--machines=nowhere.csv"], "--machines=nowhere.csv: it cannot be read"),
        (["--network=fast"], "--network=fast: write a positive number and a unit"),
        (["--deadline_hours=-1"], "deadline_hours"),
    ],
)
def test_flags_that_say_something_else_are_refused(job_dir, flags, message):
    done = planned(job_dir, *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_that_has_measured_too_little_is_refused(tmp_path):
    short = jobs.write(tmp_path / "short", run_of(seconds=30))
    done = planned(short)
    assert done.returncode == 2
    assert "no run there has trained for 60 s" in done.stderr
    nothing = planned(tmp_path)
    assert nothing.returncode == 2
    assert "holds no report.json" in nothing.stderr
