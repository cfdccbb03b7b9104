"""Threads of TensorFlow's coordinator that end by a miscount, and others that end by an error."""

import threading

from tfps.coordinator.executor import hide_miscounts


def end_by(error: Exception) -> None:
    def work() -> None:
        raise error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_only_a_miscount_has_no_traceback(monkeypatch) -> None:
    ended = []
    monkeypatch.setattr("threading.excepthook", ended.append)
    hide_miscounts()
    hide_miscounts()  # once for each connection
    end_by(AssertionError("There is no inflight closures to mark_failed."))
    assert ended == []
    end_by(AssertionError("another"))
    end_by(ValueError("There is no inflight closures"))
    assert [str(each.exc_value) for each in ended] == ["another", "There is no inflight closures"]
