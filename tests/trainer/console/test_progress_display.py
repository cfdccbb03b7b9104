import io
import logging

import pytest

from tfps.live_view import status
from tfps.live_view.status import RunStatus, TaskStatus
from trainer.console import terminal
from trainer.console.terminal import ProgressDisplay, _AboveTheView


class Terminal(io.StringIO):
    def isatty(self):
        return True


def at(records, epoch=1):
    return RunStatus(
        config="census",
        mode="async",
        epoch=epoch,
        epochs=2,
        records=records,
        records_of_epoch=1000,
        examples_per_second=2000.0,
        loss=0.5,
        seconds_left=3.0,
        tasks=(TaskStatus(name="chief"), TaskStatus(name="ps 0", state="lost")),
    )


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(terminal, "_LIVE_SECONDS", 0.0)


def test_a_terminal_shows_the_epoch_the_figures_and_the_tasks(always, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    stream = Terminal()
    ProgressDisplay(stream, is_live=True).show(lambda: at(250, epoch=2))
    text = stream.getvalue()
    for part in ("census, async, epoch 2/2", "25%", "250 of 1,000 records", "2,000 examples/s"):
        assert part in text
    for part in ("loss 0.5000", "0:00:03 left", "chief", "ps 0", "lost"):
        assert part in text


def test_whoever_relays_the_output_is_told_the_status(always):
    stream = io.StringIO()
    display = ProgressDisplay(stream, is_live=True)
    display.show(lambda: at(250))
    told, end = stream.getvalue().split("\r")
    assert (status.parse(told), end) == (at(250), "")
    display.hide()
    display.hide()
    assert stream.getvalue().split("\r")[1:] == [" ", ""]


def test_a_view_is_not_drawn_more_often_than_one_can_see():
    stream, asked = io.StringIO(), []
    display = ProgressDisplay(stream, is_live=True)
    for records in range(0, 1000, 10):
        display.show(lambda records=records: asked.append(records) or at(records))
    assert stream.getvalue().count("\r") == len(asked) == 1


def test_log_lines_stand_above_the_view(always, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    display = ProgressDisplay(stream, is_live=True)
    display.show(lambda: at(10))
    view = stream.getvalue()
    handler = _AboveTheView(stream, display)
    handler.emit(logging.LogRecord("tfps", logging.INFO, "", 0, "a line", None, None))
    erased = f"\r\x1b[{view.count(chr(10))}A\x1b[J"
    assert stream.getvalue() == f"{view}{erased}a line\n{view}"
    display.hide()
    assert stream.getvalue().endswith(f"{view}{erased}")


def test_lines_are_written_where_there_is_no_terminal(caplog):
    stream = io.StringIO()
    display = ProgressDisplay(stream, is_live=False)
    with caplog.at_level(logging.INFO):
        display.show(lambda: at(250))
        display.show(lambda: at(500))
    assert stream.getvalue() == ""
    (record,) = caplog.records
    line = "epoch 1/2: 250 of 1,000 records, 2,000 examples/s, loss 0.5000, 0:00:03 left"
    assert record.getMessage() == line
    assert status.from_json(record.status) == at(250)
