"""The chief's part where workers wait for each other: for whom they do."""

import logging
import threading
import time
from collections.abc import Collection, Sequence

from tfps.barrier.barrier import Barrier
from tfps.barrier.member_state import BarrierStatus, MemberState
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.job_dir.report_fields import RoundCounts
from tfps.leases.progress import LaneProgress

_log = logging.getLogger(__name__)


class BarrierMembers:
    """Starts and ends a barrier loop, and tells it who is to be waited for.

    A member, which is a lane of leases, is waited for while it has a lease, and from one lease to
    the next. The member of a lost worker is waited for until nobody has come further for
    `round_seconds`; it is back when its lease goes on with another worker.
    """

    def __init__(
        self, barrier: Barrier, monitor: TaskMonitor, ps_calls: PsCalls, round_seconds: float
    ):
        self._barrier = barrier
        self._monitor = monitor
        self._ps_calls = ps_calls
        self._round_seconds = round_seconds
        self._working: frozenset[int] = frozenset()
        self._status = BarrierStatus(0, 0, [])
        self._since = time.monotonic()
        self._has_begun = False
        self._error: Exception | None = None

    def report(self) -> RoundCounts | None:
        """Rounds that have closed, and contributions that came too late; None without rounds."""
        if not self._barrier.has_rounds:
            return None
        status = self._barrier.status()
        return RoundCounts(closed=status.round, dropped=status.dropped)

    def work_for(self, lanes: Collection[int]) -> None:
        """Has others wait for these lanes alone; called before their closures are scheduled."""
        now = frozenset(lanes)
        before, self._working = self._working, now
        if now and not self._has_begun:
            self._has_begun = True
            self._begin()
        if now != before:
            self._ps_calls("telling whom to wait for", lambda: self._tell(before, now))

    def poll(self, rows: Sequence[LaneProgress]) -> list[int]:
        """Has others wait no more for members that nobody works for, or whose worker is lost."""
        if self._error:
            raise self._error
        status = self._ps_calls("reading who waits for whom", self._barrier.status)
        if status.round != self._status.round:
            self._since = time.monotonic()
        self._status = status
        awaited = [k for k in self._working if status.states[k] == MemberState.AWAITED]
        left = self._given_up(awaited, rows)
        if left:
            self._ps_calls("telling whom to wait for", lambda: self._barrier.leave(left))
        for lane in left:
            if rows[lane].worker >= 0:
                _log.warning(
                    "others go on without worker %d, which is lost, until its lease goes on",
                    rows[lane].worker,
                )
        return [lane for lane in awaited if lane not in left]

    def stop(self) -> None:
        """Ends the barrier loop, if its ps can be reached; does not wait for that."""
        if self._has_begun:
            threading.Thread(target=self._stop, name="end-of-barrier", daemon=True).start()

    def _given_up(self, awaited: Sequence[int], rows: Sequence[LaneProgress]) -> list[int]:
        """Those of the lanes awaited that make others wait for nothing."""
        # While a worker is down, a lease that nobody has begun waits until another lease ends.
        down = self._monitor.down("worker")
        left = [k for k in awaited if down and rows[k].worker < 0]
        if time.monotonic() - self._since >= self._round_seconds:
            # One probe without an answer says nothing of a worker whose rounds take long.
            lost = {outage.task.index for outage in self._monitor.lost("worker")}
            left += [k for k in awaited if rows[k].worker in lost]
        return left

    def _begin(self) -> None:
        # Traced now: while workers wait for each other, no function can be registered with them.
        loop = self._barrier.run.get_concrete_function()

        def run() -> None:
            try:
                loop()
            except Exception as error:  # for the chief's thread to raise
                self._error = error

        threading.Thread(target=run, name="barrier", daemon=True).start()

    def _tell(self, before: frozenset[int], now: frozenset[int]) -> None:
        self._barrier.leave(sorted(before - now))
        self._barrier.expect(sorted(now - before))

    def _stop(self) -> None:
        try:
            self._barrier.stop()
        except Exception as error:  # with its ps, the loop is gone
            _log.debug("the barrier loop cannot be reached: %s", error)
