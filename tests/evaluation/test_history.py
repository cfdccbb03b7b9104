import dataclasses
import json
import math

import pytest

from tfps.errors import UserError
from tfps.evaluation.history import Evaluation, Evaluations
from tfps.job_dir import JobDir

FIRST = Evaluation(
    "000000000010-000001", 10, 1, 501, {"loss": 0.5, "auc": math.inf}, 0.25, {"records": 501}
)
SECOND = dataclasses.replace(FIRST, checkpoint="000000000020-000002", steps=20, epoch=2)


def test_what_is_written_is_read_in_the_order_of_the_training(tmp_path):
    directory, reader = Evaluations(JobDir(tmp_path)), Evaluations(JobDir(tmp_path))
    assert (reader.checkpoints(), reader.all()) == ([], [])
    directory.write(SECOND)
    assert reader.all() == [SECOND]
    directory.write(FIRST)
    assert reader.checkpoints() == [FIRST.checkpoint, SECOND.checkpoint]
    assert reader.all() == directory.all() == [FIRST, SECOND]
    again = dataclasses.replace(FIRST, metrics={"loss": 0.4})
    directory.write(again)
    assert directory.all() == [again, SECOND]
    assert Evaluations(JobDir(tmp_path)).all() == [again, SECOND]
    files = sorted(path.name for path in (tmp_path / "evaluations").iterdir())
    assert files == [f"{FIRST.checkpoint}.json", f"{SECOND.checkpoint}.json"]


def test_a_file_that_is_being_written_is_no_evaluation(tmp_path):
    directory = Evaluations(JobDir(tmp_path))
    directory.write(FIRST)
    (tmp_path / "evaluations" / f"{SECOND.checkpoint}.json.tmp").write_text("{")
    assert directory.checkpoints() == [FIRST.checkpoint]


def test_stale_ones_are_forgotten(tmp_path):
    directory, reader = Evaluations(JobDir(tmp_path)), Evaluations(JobDir(tmp_path))
    assert directory.delete(lambda evaluation: True) == 0
    for evaluation in (FIRST, SECOND):
        directory.write(evaluation)
    assert reader.all() == [FIRST, SECOND]
    assert directory.delete(lambda evaluation: evaluation.epoch > 1) == 1
    assert directory.all() == reader.all() == [FIRST]


@pytest.mark.parametrize("content", ["", "{"])
def test_a_file_that_a_power_cut_left_counts_as_none(tmp_path, caplog, content):
    directory = Evaluations(JobDir(tmp_path))
    for evaluation in (FIRST, SECOND):
        directory.write(evaluation)
    (tmp_path / "evaluations" / f"{SECOND.checkpoint}.json").write_text(content)
    reader = Evaluations(JobDir(tmp_path))
    assert reader.all() == reader.all() == [FIRST]
    assert reader.checkpoints() == [FIRST.checkpoint]
    assert caplog.text.count("is empty or damaged and counts as none") == 1
    directory.write(SECOND)
    assert reader.all() == [FIRST, SECOND]


@pytest.mark.parametrize("content", ["[]", "{}", json.dumps({"format": 2}), '{"format": 1}'])
def test_a_file_that_is_no_evaluation_is_named(tmp_path, content):
    Evaluations(JobDir(tmp_path)).write(FIRST)
    (tmp_path / "evaluations" / f"{FIRST.checkpoint}.json").write_text(content)
    with pytest.raises(UserError, match=r"000000000010-000001\.json is not an evaluation"):
        Evaluations(JobDir(tmp_path)).all()


def test_an_evaluation_cannot_name_another_file(tmp_path):
    directory, precious = Evaluations(JobDir(tmp_path)), tmp_path / "precious.json"
    precious.write_text("precious")
    directory.write(FIRST)
    path = tmp_path / "evaluations" / f"{FIRST.checkpoint}.json"
    path.write_text(path.read_text().replace(FIRST.checkpoint, "../precious"))
    with pytest.raises(UserError, match=r"it is of checkpoint '\.\./precious'"):
        Evaluations(JobDir(tmp_path)).delete(lambda evaluation: True)
    assert precious.read_text() == "precious"


def test_a_person_reads_the_metrics():
    assert str(dataclasses.replace(FIRST, metrics={"loss": 0.5, "auc": 0.75})) == (
        "loss 0.5000, auc 0.7500"
    )
