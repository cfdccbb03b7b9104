import pytest

from tfps.job_dir.task_name import TaskName

WORKER = TaskName("worker", 12)


def test_what_a_name_is_written_as_is_read_again():
    assert TaskName.parse(str(WORKER)) == TaskName.parse(WORKER.file_name) == WORKER


@pytest.mark.parametrize("text", ["", "worker", "worker x", "worker-"])
def test_what_names_no_task_is_refused(text):
    with pytest.raises(ValueError, match=r"names no task|invalid literal"):
        TaskName.parse(text)


def test_names_for_people_for_files_and_for_tensorflow():
    assert (str(WORKER), WORKER.label, WORKER.file_name) == ("worker 12", "worker 12", "worker-12")
    assert TaskName("chief", 0).label == "chief"
    assert WORKER.device == "/job:worker/replica:0/task:12/device:CPU:0"


def test_names_are_in_the_order_of_their_indices():
    assert sorted([TaskName("ps", 10), WORKER, TaskName("ps", 2)])[0] == TaskName("ps", 2)
