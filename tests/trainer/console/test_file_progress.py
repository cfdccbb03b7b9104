import io
import re

from trainer.console import file_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def work(stream, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stderr", stream)
    with file_progress.shown(2000, "records") as progress:
        progress.add(500, "of a file")
        progress.write("left out: [a] row")
        progress.add(1500)
    return stream.getvalue()


def test_a_terminal_shows_a_bar_until_all_is_done(monkeypatch):
    drawn = work(Terminal(), monkeypatch)
    plain = re.sub(r"\x1b\[[\d;]*m", "", drawn)
    assert "left out: [a] row\n" in plain
    assert "2000/2000 records" in plain
    assert drawn.endswith("\x1b[1A\x1b[2K")  # and is taken off


def test_elsewhere_only_what_is_written_is_there(monkeypatch):
    assert work(io.StringIO(), monkeypatch) == "left out: [a] row\n"
