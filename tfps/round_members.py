"""The chief's part in rounds: for whom they wait."""

import logging
import threading
import time
from collections.abc import Collection, Sequence

from tfps.ps_calls import PsCalls
from tfps.store.lease_progress import SlotProgress
from tfps.store.round_status import RoundStatus, Standing
from tfps.store.rounds import Rounds
from tfps.task_watch import TaskWatch

_log = logging.getLogger(__name__)


class RoundMembers:
    """Starts and ends the keeper of the rounds, and tells it who is to be waited for.

    A member, which is a slot of leases, is waited for while it has a lease, and from one lease to
    the next. The member of a lost worker is waited for until `round_seconds` have passed without a
    round; it is back when its lease goes on with another worker.
    """

    def __init__(self, rounds: Rounds, watch: TaskWatch, ps_calls: PsCalls, round_seconds: float):
        """Prepares it.

        Args:
            rounds: What it keeps.
            watch: Knows which workers are lost.
            ps_calls: Makes the chief's calls of the ps.
            round_seconds: How long a round waits for a worker that is lost.
        """
        self._rounds = rounds
        self._watch = watch
        self._ps_calls = ps_calls
        self._round_seconds = round_seconds
        self._working: frozenset[int] = frozenset()
        self._status = RoundStatus(0, 0, [])
        self._since = time.monotonic()
        self._has_begun = False
        self._error: Exception | None = None

    def report(self) -> dict[str, int]:
        """Rounds that have closed, and contributions that came too late, as JSON-ready data."""
        status = self._rounds.status()
        return {"closed": status.round, "dropped": status.dropped}

    def work_for(self, slots: Collection[int]) -> None:
        """Has rounds wait for these slots and no others; before their closures are scheduled."""
        now = frozenset(slots)
        before, self._working = self._working, now
        if now and not self._has_begun:
            self._has_begun = True
            self._begin()
        if now != before:
            self._ps_calls("telling whom rounds wait for", lambda: self._tell(before, now))

    def poll(self, rows: Sequence[SlotProgress]) -> list[int]:
        """Gives up waiting for whom it makes no sense to.

        Args:
            rows: Progress of the leases, by slot.

        Returns:
            The slots that the open round still waits for.

        Raises:
            Exception: What ended the keeper, if it has ended.
        """
        if self._error:
            raise self._error
        status = self._ps_calls("reading where the rounds are", self._rounds.status)
        now = time.monotonic()
        if status.round != self._status.round:
            self._since = now
        self._status = status
        down = {name.partition(" at ")[0] for name in self._watch.down("worker")}
        awaited = [k for k in self._working if status.standings[k] == Standing.AWAITED]
        # With a worker down, a lease that none has begun waits for another one to end.
        lost = [k for k in awaited if down and rows[k].worker < 0]
        if now - self._since >= self._round_seconds:
            lost += [k for k in awaited if f"worker {rows[k].worker}" in down]
        if lost:
            self._ps_calls("telling whom rounds wait for", lambda: self._rounds.leave(lost))
        for slot in lost:
            if rows[slot].worker >= 0:
                _log.warning(
                    "round %d closes without worker %d, which is lost, until its lease goes on",
                    status.round,
                    rows[slot].worker,
                )
        return [slot for slot in awaited if slot not in lost]

    def stop(self) -> None:
        """Ends the keeper, if its ps can be reached; does not wait for it."""
        if self._has_begun:
            threading.Thread(target=self._stop, name="end-of-rounds", daemon=True).start()

    def _begin(self) -> None:
        # Traced now: while workers wait for a round, no function can be registered with them.
        keep = self._rounds.keep.get_concrete_function()

        def run() -> None:
            try:
                keep()
            except Exception as error:  # for the chief's thread to raise
                self._error = error

        threading.Thread(target=run, name="rounds", daemon=True).start()

    def _tell(self, before: frozenset[int], now: frozenset[int]) -> None:
        self._rounds.leave(sorted(before - now))
        self._rounds.expect(sorted(now - before))

    def _stop(self) -> None:
        try:
            self._rounds.stop()
        except Exception as error:  # with its ps, the keeper is gone
            _log.debug("the keeper of rounds cannot be reached: %s", error)
