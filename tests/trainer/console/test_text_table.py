import io

import pytest

from trainer.console.text_table import named_texts, text_table

ROWS = [("census", "1,000", "as it is"), ("[bold]criteo", "20", "x" * 90)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_columns_are_as_wide_as_their_widest_cell():
    lines = text_table(("name", "records", "what"), ROWS, right=(1,))
    assert lines == [
        "name          records  what",
        "census          1,000  as it is",
        f"[bold]criteo       20  {'x' * 90}",
    ]


def test_names_stand_in_front_of_their_texts():
    lines = named_texts([("job", "census"), ("a longer name", "text")], 5)
    assert lines == ["job           census", "a longer name text"]
    assert named_texts([("job", "census")], 5) == ["job   census"]


@pytest.mark.parametrize("columns", [40, 72])
def test_nothing_is_lost_on_a_terminal_that_is_narrower(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", Terminal())
    table = text_table(("name", "records", "what"), ROWS, right=(1,))
    names = named_texts([("what", "y" * 90)], 5)
    assert max(map(len, table + names)) <= columns
    assert "".join(table).count("x") == 90
    assert "".join(names).count("y") == 90
