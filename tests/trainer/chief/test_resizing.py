"""What a chief answers who asks for other numbers of tasks."""

import pytest

from tfps.cluster.spec import Cluster
from tfps.job_dir import JobDir, size
from tfps.job_dir.size import Size
from tfps.job_dir.size_request import DONE, SizeRequest
from trainer.chief.resizing import Resizing, leave_to_launcher

SERVED = Cluster(("a:1",), ("b:1", "b:2", "a:2"), ("c:1",), chief_works=True)
REPLICAS = Cluster(("a:1",), ("b:1", "b:2"))


@pytest.fixture(name="launcher")
def launcher_fixture(tmp_path, monkeypatch):
    """Where a launcher looks that can change the size."""
    monkeypatch.setenv(size.VARIABLE, str(tmp_path / "new_size.json"))
    return tmp_path / "new_size.json"


def test_who_asks_is_answered_by_the_run_that_has_the_size(tmp_path, launcher):
    job_dir = JobDir(tmp_path)
    request, before = SizeRequest(job_dir), Resizing(job_dir, SERVED, 0)
    assert before.asked() is None
    request.post(Size(1, 2))
    assert before.asked() == Size(1, 2)
    before.leaving()
    leave_to_launcher(Size(1, 2))
    assert size.found(launcher) == Size(1, 2)
    after = Resizing(job_dir, Cluster(("a:1",), ("b:1",), ("c:1", "c:2")), 0)
    after.began()
    assert request.read().answer == DONE
    assert after.asked() is None


def test_a_run_that_has_begun_with_another_size_says_so(tmp_path):
    job_dir = JobDir(tmp_path)
    request, again = SizeRequest(job_dir), Resizing(job_dir, SERVED, 0)
    again.began()
    assert request.read() is None
    request.post(Size(5, 1))
    again.leaving()
    again.began()
    assert request.read().answer == "the run has begun with 2 workers and 1 ps instead"
    again.leaving()
    assert not request.waiting()


def test_a_chief_that_was_lost_before_it_saw_a_request_answers_it_when_it_is_back(
    tmp_path, launcher
):
    request, again = SizeRequest(JobDir(tmp_path)), Resizing(JobDir(tmp_path), SERVED, 0)
    request.post(Size(5, 1))
    again.began()
    assert again.asked() == request.waiting() == Size(5, 1)


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    ("cluster", "wanted", "answer"),
    [
        (SERVED, Size(2, 1), "the run has 2 workers and 1 ps already"),
        (SERVED, Size(2, 0), "a run with ps needs one"),
        (REPLICAS, Size(2, 1), "a run without ps has none: --ps=0"),
        (SERVED, Size(1, 1), "--min_workers=2 of the run is more than 1"),
    ],
)
def test_a_size_that_cannot_be_is_refused(tmp_path, caplog, cluster, wanted, answer):
    request = SizeRequest(JobDir(tmp_path))
    request.post(wanted)
    assert Resizing(JobDir(tmp_path), cluster, 2).asked() is None
    assert request.read().answer == answer
    assert caplog.messages == [f"asked for {wanted}: {answer}"]


def test_a_run_whose_launcher_cannot_change_it_says_what_to_do(tmp_path):
    request = SizeRequest(JobDir(tmp_path))
    request.post(Size(9, 9))
    assert Resizing(JobDir(tmp_path), SERVED, 0).asked() is None
    assert request.read().answer.endswith("start it again with other numbers; it resumes")


@pytest.mark.parametrize("text", ["", "{", '{"workers": "two"}', "[]"])
def test_a_file_that_is_no_request_asks_for_nothing(tmp_path, launcher, text):
    (tmp_path / "size.json").write_text(text)
    assert Resizing(JobDir(tmp_path), SERVED, 0).asked() is None
