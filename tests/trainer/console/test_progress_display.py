import io
import logging

from tfps.coordinator.progress import Progress
from trainer.console import progress_display
from trainer.console.progress_display import ProgressDisplay


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(display, examples, epoch=0, loss=0.5):
    display.show(
        Progress(epoch, examples, 2000.0, loss), before=1000 * epoch, records=1000, epochs=2
    )


def test_a_bar_shows_the_epoch_the_records_the_speed_and_the_loss(monkeypatch):
    monkeypatch.setattr(progress_display, "_BAR_SECONDS", 0.0)
    stream = io.StringIO()
    display = ProgressDisplay(stream, bar=True)
    show(display, 1250, epoch=1)
    text = stream.getvalue()
    assert text.endswith("\r")
    for part in ("epoch 2/2", "25%", "250/1.00k", "2.00k examples/s", "loss 0.5000"):
        assert part in text


def test_a_bar_is_not_drawn_more_often_than_one_can_see():
    stream = io.StringIO()
    display = ProgressDisplay(stream, bar=True)
    for examples in range(0, 1000, 10):
        show(display, examples)
    assert stream.getvalue().count("\r") == 1


def test_a_log_line_takes_the_bar_off_a_terminal(monkeypatch):
    monkeypatch.setattr(progress_display, "_BAR_SECONDS", 0.0)
    stream = Terminal()
    display = ProgressDisplay(stream, bar=True)
    show(display, 10)
    display.clear()
    assert stream.getvalue().endswith("\r\x1b[2K")
    length = len(stream.getvalue())
    display.clear()
    assert len(stream.getvalue()) == length


def test_a_hidden_bar_leaves_a_blank_status_for_whoever_relays_it(monkeypatch):
    stream = io.StringIO()
    display = ProgressDisplay(stream, bar=True)
    show(display, 10)
    display.hide()
    display.hide()
    assert stream.getvalue().split("\r")[1:] == [" ", ""]


def test_a_bar_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    stream = io.StringIO()
    show(ProgressDisplay(stream, bar=True), 10)
    assert 60 < len(stream.getvalue().rstrip("\r")) < 72


def test_lines_are_written_where_there_is_no_terminal(caplog):
    stream = io.StringIO()
    display = ProgressDisplay(stream, bar=False)
    with caplog.at_level(logging.INFO):
        show(display, 250)
        show(display, 500)
    assert stream.getvalue() == ""
    (record,) = caplog.records
    assert "epoch 1/2: 250 of 1,000 records, 2,000 examples/s, loss 0.5000" in record.getMessage()
