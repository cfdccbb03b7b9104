"""The page of a job, from what its directory holds."""

import dataclasses
import html.parser
import math

import pytest

from tests.loaded import client
from tests.trainer.page.jobs import BEGAN, evaluated, events, sampled, write
from tfps.evaluation.history import Evaluation, Evaluations
from trainer.page.job_record import JobRecord
from trainer.page.page import charts_of, page
from trainer.page.tables import tables_of

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(name="job")
def job_fixture(tmp_path):
    return JobRecord.read(write(tmp_path / "monday", events()))


class Reader(html.parser.HTMLParser):
    """Notes what a page is made of, and what it asks for from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.asked, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        named = ("src", "href", "data", "action", "srcset", "background")
        self.asked += [value for name, value in attrs if name in named or name.startswith("on")]

    def handle_data(self, data):
        self.text.append(data)


def test_what_a_run_gave_up_is_in_no_curve_over_records(job):
    assert job.losses() == [(500, 0.7), (1000, 0.6), (1500, 0.5)]
    assert job.metric("auc") == [(1000, 0.8), (2000, 0.85)]
    assert len(job.speeds()) == 4  # which goes over time


def test_a_job_has_all_charts_and_tables(job):
    charts = {chart.title: chart for chart in charts_of([job])}
    assert list(charts) == [
        "Loss",
        "auc",
        "Records per second",
        "Share of its time that a worker waits",
        "Memory",
        "Staleness",
    ]
    kinds = [mark.kind for mark in charts["Records per second"].marks]
    assert sorted(set(kinds)) == ["checkpoint", "evaluation", "fault"]
    assert [each.name for each in charts["Memory"].series] == ["chief 0", "ps 0", "worker 1"]
    idle = charts["Share of its time that a worker waits"].series
    assert [each.name for each in idle] == ["worker 0", "worker 1"]
    assert all(y == pytest.approx(5 / 55) for each in idle for _, y in each.points)
    tables = {table.title: table for table in tables_of([job])}
    assert list(tables) == ["Overview", "Workers", "Tables", "What happened", "Settings"]
    assert tables["Tables"].rows == [
        ("item", "5,000", "16", "625 KiB", "83.3%", "300 (6%)"),
        ("user", "1,000", "16", "125 KiB", "16.7%", ""),
    ]
    assert tables["Settings"].note == "Set for the last run: train.epochs=2."
    texts = [row[-1] for row in tables["What happened"].rows]
    assert "ps 0 was lost: its port refused connections" in texts
    assert "training resumed from 1,000 records" in texts
    assert texts[0] == "a chief began with 2 workers and 3 ps"


def test_another_size_is_a_mark(tmp_path):
    larger = dataclasses.replace(events()[0], at=BEGAN + 500, workers=4)
    again = dataclasses.replace(larger, at=BEGAN + 700)
    written = write(tmp_path / "job", [*events(), larger, sampled(9, 2500, 0.4), again])
    charts = {chart.title: chart for chart in charts_of([JobRecord.read(written)])}
    marks = [mark for mark in charts["Records per second"].marks if mark.kind == "size"]
    texts = [(mark.at, mark.text) for mark in marks]
    assert texts == [(500.0, "from 2 workers and 3 ps to 4 workers and 3 ps")]


def test_the_losses_of_outputs_share_a_chart(tmp_path):
    happened = [*events(), *evaluated(8, 2500, loss=1.0, sold_loss=0.25, days_loss=0.75)]
    job = JobRecord.read(write(tmp_path / "job", happened))
    charts = {chart.title: chart for chart in charts_of([job])}
    assert list(charts)[:3] == ["Loss", "Loss of each output", "auc"]
    outputs = charts["Loss of each output"].series
    assert {each.name: each.points for each in outputs} == {
        "sold": [(2500, 0.25)],
        "days": [(2500, 0.75)],
    }


def test_what_was_predicted_before_training_is_drawn_with_the_evaluations(tmp_path):
    more = [sampled(8, 2500, 0.3, auc=0.7, log_loss=0.4), sampled(9, 2700, 0.3, auc=0.9)]
    happened = [*events(), *more, *evaluated(10, 3000, AUC=0.8)]
    job = JobRecord.read(write(tmp_path / "job", happened))
    charts = {chart.title: chart for chart in charts_of([job])}
    training, evaluation = charts["auc"].series
    assert (training.name, training.points) == ("training", [(2500, 0.7), (2700, 0.9)])
    assert evaluation.points == [(1000, 0.8), (2000, 0.85)]
    assert charts["AUC"].series[0].points == training.points  # by whatever name it is measured
    assert charts["log_loss"].series[0].points == [(2500, 0.4)]


def test_curves_of_scores_are_of_the_best_evaluation(job):
    """The job's best evaluation is neither the first nor the last that has curves."""
    best = job.report.best_evaluation.evaluation
    for number, (epoch, steps) in enumerate([(0, 1), (best.epoch, best.steps), (9, 900)]):
        roc, calibration = [[0, 0], [0.1 * number, 0.5], [1, 1]], [[0.1, 0.02], [0.3, 0.25]]
        curves = {"sold_auc": {"roc": roc, "calibration": calibration}}
        name = f"{epoch:09}-0"
        found = Evaluation(name, steps, epoch, 9, {"sold_auc": 0.7}, 1.0, {}, curves)
        Evaluations(job.job_dir).write(found)
    drawn = charts_of([JobRecord.read(job.job_dir)])
    charts = {chart.title.partition(":")[0]: chart for chart in drawn}
    roc, chance = charts["ROC"].series
    assert (roc.name, roc.points[1], chance.points) == ("sold", (0.1, 0.5), [(0, 0), (1, 1)])
    calibration, even = charts["Calibration"].series
    assert calibration.points == [(0.1, 0.02), (0.3, 0.25)]
    assert even.points == [(0, 0), (0.3, 0.3)]


def test_what_came_of_a_job_is_read_before_its_curves(job):
    text = page([job])
    places = [text.index(part) for part in (">Overview<", "best evaluation", "<svg", ">Workers<")]
    assert places == sorted(places)
    names = [row[0] for row in tables_of([job])[0].rows]
    assert names[:3] == ["status", "stopped early", "best evaluation"]
    assert names.index("auc") < names.index("mode")


def test_a_diverged_run_is_shown(tmp_path):
    happened = [*events(), sampled(7, 2500, math.inf), *evaluated(8, 2500, loss=math.nan, auc=0.5)]
    text = page([JobRecord.read(write(tmp_path / "job", happened))])
    assert "2 not drawn: no finite numbers" in text


def test_several_jobs_are_compared(tmp_path, job):
    other = JobRecord.read(
        write(tmp_path / "tuesday", events(**{"train.batch_size": "128"}), batch_size=128)
    )
    [loss, loss_over_time, auc, *_, speed] = charts_of([job, other])
    assert loss_over_time.series[0].points[:2] == [(60.0, 0.7), (120.0, 0.6)]
    assert [each.name for each in loss.series] == [
        "monday: training",
        "monday: evaluation",
        "tuesday: training",
        "tuesday: evaluation",
    ]
    assert [each.name for each in auc.series] == [x.name for x in speed.series]
    overview, differs = tables_of([job, other])
    assert overview.header == ("", "monday", "tuesday")
    assert differs.rows == [("train.batch_size", "64", "128")]


def test_the_page_needs_nothing_else_and_takes_names_for_text(tmp_path):
    job_dir = write(tmp_path / "job", events(config=HOSTILE, a=HOSTILE), config=HOSTILE)
    read = Reader(page([JobRecord.read(job_dir)]))
    assert read.asked == []
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(read.tags)
    assert read.tags.count("svg") == 6
    assert any(HOSTILE in text for text in read.text)


def test_a_job_of_before_there_was_a_history_has_its_tables(tmp_path):
    job = JobRecord.read(write(tmp_path / "job", []))
    assert [chart.title for chart in charts_of([job])] == ["Staleness"]
    assert [table.title for table in tables_of([job])] == ["Overview", "Workers"]


def test_the_command_writes_the_page_of_all_that_are_named(tmp_path):
    job_dirs = [write(tmp_path / name, events()) for name in ("monday", "tuesday")]
    output = tmp_path / "report.html"
    done = client.run("trainer.report", *job_dirs, f"--output={output}")
    assert (done.returncode, done.stdout) == (0, f"report: {output}\n")
    assert "What differs" not in output.read_text()  # nothing does
    assert "tuesday: training" in output.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: name a job's directory: python -m trainer.report JOB_DIR\n"),
        (["nowhere"], "error: nowhere holds no report.json: no job ran there\n"),
    ],
)
def test_what_is_no_job_is_refused(arguments, message, tmp_path):
    done = client.run("trainer.report", *arguments, f"--output={tmp_path / 'x.html'}")
    assert (done.returncode, done.stderr) == (2, message)
