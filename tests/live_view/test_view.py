import dataclasses
import re

import pytest

from tests.live_view.test_status import TASKS, run_status
from tfps.live_view import view
from tfps.live_view.status import TaskStatus
from tfps.live_view.view import LiveBlock

MANY = tuple(TaskStatus(name=f"worker {index}", share=0.02, idle=0.1) for index in range(50))


def test_each_task_has_a_line_with_its_figures():
    lines = view.draw(run_status(loss=0.25), 100, 40, has_colour=False)
    assert lines[0].startswith("census, async, epoch 1/2 ━")
    assert lines[0].endswith("25%")
    assert lines[1] == "1,250 of 5,000 records, 1,234 examples/s, loss 0.2500"
    assert lines[2].split() == ["task", "state", "records", "waits", "cores", "memory"]
    assert lines[3].split() == ["chief", "up", "0.20", "953.7", "MiB"]
    assert lines[5].split() == ["worker", "1", "up", "60.0%", "20.0%"]
    assert lines[6].split() == ["ps", "0", "lost"]


@pytest.mark.parametrize("columns", [10, 30, 60, 200])
@pytest.mark.parametrize("rows", [5, 24])
@pytest.mark.parametrize("has_colour", [False, True])
def test_the_view_is_smaller_than_the_terminal(columns, rows, has_colour):
    lines = view.draw(run_status(tasks=MANY), columns, rows, has_colour)
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
    assert max(map(len, plain)) < columns
    assert (plain != lines) == has_colour
    assert len(lines) <= max(8, rows - 2)
    if columns >= 60:
        assert re.fullmatch(r"and \d+ more, which are up", plain[-1])


def test_a_name_cannot_steer_the_terminal():
    evil = dataclasses.replace(TASKS[0], name="\x1b[2Jworker\n7")
    lines = view.draw(run_status(tasks=(evil,), config="[bold]x"), 80, 24, has_colour=False)
    assert "[2Jworker7" in lines[3]
    assert lines[0].startswith("[bold]x,")
    assert not any("\x1b" in line for line in lines)


def test_a_block_stays_below_what_is_written():
    block = LiveBlock()
    assert block.below("a line\n") == "a line\n"
    assert block.replace(["one", "two"]) == "one\ntwo"
    assert block.below("a line\n") == "\r\x1b[1A\x1b[Ja line\none\ntwo"
    assert block.replace(["three"]) == "\r\x1b[1A\x1b[Jthree"
    assert block.replace(()) == "\r\x1b[K"
    assert block.below("a line\n") == "a line\n"
