"""What people see of names and values that stand in data."""

from tfps.errors import listed, printable, quoted


def test_a_terminal_is_given_nothing_to_act_on() -> None:
    assert printable("Köln, 用户\nsecond line") == "Köln, 用户\nsecond line"
    assert printable("a\x1b[31m\r\x00\udcff") == r"a\x1b[31m\r\x00\udcff"


def test_a_value_stands_on_one_line_in_quotes() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted(b"\xff\x1b[2J") == r"'\\xff\x1b[2J'"
    assert quoted("x" * 100) == f"'{'x' * 60}'…"


def test_names_that_are_no_plain_words_are_quoted() -> None:
    assert listed(["user.id", "用户", "User ID", "a, b", "\n\x02", ""]) == (
        r"user.id, 用户, User ID, 'a, b', '\n\x02', ''"
    )
    assert listed([]) == "nothing"
    assert listed(map(str, range(25)), 3) == "0, 1, 2 and 22 more"
