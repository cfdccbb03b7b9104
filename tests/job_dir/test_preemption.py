import pathlib

from tfps.job_dir.preemption import PreemptionNotices


def test_who_leaves_is_announced_until_it_is_let_go(tmp_path: pathlib.Path) -> None:
    chief, ps = PreemptionNotices(str(tmp_path)), PreemptionNotices(str(tmp_path))
    assert chief.posted() == []
    ps.post("ps 1")
    ps.post("ps 0")
    assert chief.posted() == ["ps 0", "ps 1"]
    chief.clear("ps 1")
    assert (ps.is_posted("ps 0"), ps.is_posted("ps 1")) == (True, False)
    ps.clear("ps 1")  # again: it is away already
    assert chief.posted() == ["ps 0"]
