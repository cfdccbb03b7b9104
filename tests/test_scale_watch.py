import pytest

from benchmarks.scale_watch import rows


@pytest.mark.slow
def test_watching_costs_no_lookup_and_no_thread_for_each_task():
    found = {row["what"]: row["by_tasks"] for row in rows([3, 30])}
    assert found["lookups of names by a chief while all tasks answer"] == {3: 0.0, 30: 0.0}
    assert found["lookups of names by a chief until then"] == {3: 6, 30: 60}
    threads = found["threads that watch, in both"]
    assert threads[3] == threads[30]
