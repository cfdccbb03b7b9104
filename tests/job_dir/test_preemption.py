import pathlib

from tfps.job_dir.preemption import Departures


def test_who_leaves_is_announced_until_it_is_let_go(tmp_path: pathlib.Path) -> None:
    chief, ps = Departures(str(tmp_path)), Departures(str(tmp_path))
    assert chief.announced() == []
    ps.announce("ps 1")
    ps.announce("ps 0")
    assert chief.announced() == ["ps 0", "ps 1"]
    chief.withdraw("ps 1")
    assert (ps.is_announced("ps 0"), ps.is_announced("ps 1")) == (True, False)
    ps.withdraw("ps 1")  # again: it is away already
    assert chief.announced() == ["ps 0"]
