"""The datasets that a run follows: those that appear while it trains, one after the other.

They are taken by name, in ascending order. Which came before is known from the name of the last one
taken, a count and a checksum: nothing here grows with the number of datasets.
"""

import dataclasses
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from tfps.data.dataset_names import Names, poll_seconds
from tfps.data.manifest import Manifest
from tfps.data.shards import Shard
from tfps.data.training_data import TrainingData
from tfps.errors import UserError
from tfps.storage.failures import StaleReadTolerance

FOLLOWED = "followed"  # the field of a checkpoint's data by which they are known
SHARDS = 1 << 20  # of a dataset at most: a shard's number is the dataset's times this and its place
_AHEAD = 2  # datasets that are read before they are trained
_MOST_SET_ASIDE = 3  # in a row
_NOTES = 10  # that are kept
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Position:
    """How far the datasets are taken, as a checkpoint keeps it."""

    followed: int = 0  # datasets of which all records are in leases
    records: int = 0  # in them
    chain: int = 0  # a checksum of what they were
    last: str = ""  # the name of the last of them
    begun: str = ""  # the name of the one after it, if some of its records are in leases
    identity: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of that one

    def after(self, name: str, data: Manifest) -> "Position":
        """Where the next dataset is taken whole."""
        known = json.dumps(data.identity, sort_keys=True).encode()
        chain, records = zlib.crc32(known, self.chain), self.records + data.records
        return Position(self.followed + 1, records, chain, last=name)


class _Known(NamedTuple):
    """A dataset that is read."""

    name: str
    data: Manifest
    before: Position
    after: Position


class FollowedData:
    """What a run trains that follows datasets; they are counted as epochs are, from 0.

    `read` gives a directory's manifest, or refuses it. A thread reads the next two ahead. Those
    that are in a checkpoint are forgotten (`saved`).
    """

    is_followed: ClassVar[bool] = True

    def __init__(self, names: Names, read: Callable[[str], Manifest], seconds: float):
        """`seconds` is how long another dataset is waited for."""
        self.seconds = seconds
        self.not_taken, self.notes = 0, list[str]()  # how many datasets; the last sentences on them
        self._names = names
        self._read = read
        self._known: dict[int, _Known] = {}  # by number
        self._position = Position()  # before all that are known
        self._last = ""  # the name after which the next is looked for
        self._front = 0  # the dataset being trained
        self._example: Manifest | None = None
        self._set_aside: list[str] = []  # in a row
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._moved = threading.Event()  # the front, so that there may be room for another
        self._patience = StaleReadTolerance()
        self._thread: threading.Thread | None = None

    def open(self, position: Position | None) -> None:
        """Reads one dataset, from which the others do not differ in kind; waits for the first."""
        self._begin(position or Position())
        if name := self._position.begun or self._position.last:
            directory = self._names.directory(name)
            try:
                self._example = self._read(directory)
                return
            except UserError:
                _log.info("%s is gone: another dataset is looked at", directory)
        deadline, has_said = time.monotonic() + self.seconds, False
        while not self._is_known():
            if time.monotonic() > deadline:
                raise UserError(f"--data.train: {self._waited()}; what writes the datasets?")
            if not has_said:
                _log.info("waiting up to %.0f s for %s", self.seconds, self.wanted)
            has_said = True
            time.sleep(self._poll_seconds)
        self._example = self._known[self._front].data

    def _is_known(self) -> bool:
        """Whether the dataset at the front is known, once it was looked for."""
        self._look(ahead=0)
        if self._failure:
            raise self._failure
        return self._front in self._known

    def resume(self, position: Position | None) -> None:
        """Takes datasets from a checkpoint's position on; None for the first."""
        position = position or Position()
        if self._thread or position != self._position:  # else `open` has begun there
            self.stop()
            self._begin(position)
        if begun := self._position.begun:
            self._known[self._front] = self._read_begun(begun)
            self._last = begun
        self._thread = threading.Thread(target=self._work, name="datasets", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes no more."""
        thread, self._thread = self._thread, None
        self._moved.set()
        if thread:
            thread.join()

    @property
    def wanted(self) -> str:
        """What is waited for."""
        return self._names.wanted(self._last)

    def wait(self, number: int, seconds: float) -> bool:
        """Whether a dataset is there, after some seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._known or self._failure, seconds)
            if number in self._known:
                return True
            if self._failure:
                raise self._failure
            return False

    def saved(self, number: int) -> None:
        """Forgets the datasets before one: all of their records are in a checkpoint."""
        with self._changed:
            for each in sorted(each for each in self._known if each < number):
                known = self._known.pop(each)
                self._position, self._example = known.after, known.data

    def begun(self, number: int) -> list[Manifest]:
        """The datasets up to one that no checkpoint holds wholly, as far as it is known."""
        with self._changed:
            return [known.data for each, known in sorted(self._known.items()) if each <= number]

    @property
    def datasets(self) -> tuple[Manifest, ...]:
        """One or more of the datasets."""
        assert self._example is not None
        with self._changed:
            return tuple(known.data for known in self._known.values()) or (self._example,)

    def of_epoch(self, epoch: int) -> Manifest:
        """A dataset, or one that is known where it is not."""
        with self._changed:
            known = self._known.get(epoch)
        return known.data if known else self.datasets[-1]

    def shards_of(self, epoch: int) -> list[tuple[int, Shard]]:
        """The shards of a dataset with their numbers; none while it is not there."""
        with self._changed:
            self._front = epoch
            known = self._known.get(epoch)
        self._moved.set()
        return list(enumerate(known.data.shards, epoch * SHARDS)) if known else []

    def find(self, shard: int) -> tuple[Manifest, int]:
        """The dataset that holds a shard, and its place among the dataset's."""
        number, place = divmod(shard, SHARDS)
        with self._changed:
            return self._known[number].data, place

    def goes_on(self, epoch: int) -> bool:
        """Whether a dataset is there, which begins while the one before is still trained."""
        return epoch in self._known

    def has_shard(self, shard: int) -> bool:
        """Whether the dataset that holds a shard is still known."""
        return shard // SHARDS in self._known

    def records_from(self, epoch: int) -> int:
        """Records of the datasets from one on that are there."""
        with self._changed:
            return sum(known.data.records for each, known in self._known.items() if each >= epoch)

    def progress(self, epoch: int, examples: int) -> tuple[int, int]:
        """How many records are trained, and how many there are by now."""
        with self._changed:
            last = max(self._known, default=None)
            known = self._position.records if last is None else self._known[last].after.records
        return examples, known

    def records_in(self, epochs: int) -> None:
        """Nobody knows how many records a run trains."""
        return

    def records_before(self, epoch: int) -> int:
        """Records of the datasets before one."""
        return self._before(epoch).records

    def identities(self, epoch: int = 0, is_begun: bool = False) -> tuple[dict[str, Any], ...]:
        """What a checkpoint keeps: the position where a dataset is the next, or partly trained."""
        before = self._before(epoch)
        if is_begun:
            known = self._known[epoch]
            before = dataclasses.replace(before, begun=known.name, identity=known.data.identity)
        return (dataclasses.asdict(before),)

    def _begin(self, position: Position) -> None:
        self._known, self._position, self._failure = {}, position, None
        self.not_taken, self.notes, self._set_aside = 0, [], []
        self._front, self._last = position.followed, position.last

    def _read_begun(self, name: str) -> _Known:
        """The dataset of which a checkpoint has some records."""
        directory, position = self._names.directory(name), self._position
        data = self._read(directory)
        if data.identity != dict(position.identity):
            raise UserError(
                f"--data.train: {directory} is not what it was when the last checkpoint was saved, "
                f"in the middle of it: {data.identity}, and was {dict(position.identity)}; put it "
                "back, or use another --job_dir with --train.init_from"
            )
        return _Known(name, data, position, position.after(name, data))

    def _before(self, number: int) -> Position:
        with self._changed:
            if known := self._known.get(number - 1):
                return known.after
            return self._position

    @property
    def _next(self) -> int:
        """The number of the dataset that is read next."""
        with self._changed:
            return max(self._known, default=self._position.followed - 1) + 1

    @property
    def _poll_seconds(self) -> float:
        return poll_seconds(self._names.directory(self._last or "1"))

    def _work(self) -> None:
        """Reads ahead; what goes wrong is raised where a dataset is waited for."""
        me = threading.current_thread()
        while self._thread is me and not self._failure:
            try:
                self._look()
            except Exception as error:
                self._fail(error)
            self._moved.wait(self._poll_seconds)
            self._moved.clear()

    def _look(self, ahead: int = _AHEAD) -> None:
        """Reads the next datasets that are there, so many ahead of the one that is trained."""
        while self._next <= self._front + ahead:
            name = self._patience.ask(lambda: self._names.after(self._last, self._note), None)
            if name is None:
                return
            directory = self._names.directory(name)
            try:
                data = self._read(directory)
                if len(data.shards) > SHARDS:
                    raise UserError(f"{directory} has more than {SHARDS:,} shards")
            except UserError as error:
                self._take_not(name, str(error))
                if self._failure:
                    return
            else:
                self._take(name, data)

    def _take(self, name: str, data: Manifest) -> None:
        with self._changed:
            number = self._next
            before = self._before(number)
            self._known[number] = _Known(name, data, before, before.after(name, data))
            self._last, self._set_aside = name, []
            self._changed.notify_all()
        _log.info(
            "found dataset %d, %s: %s records", number + 1, data.directory, f"{data.records:,}"
        )

    def _take_not(self, name: str, why: str) -> None:
        self._note(f"{self._names.directory(name)} is set aside: {why}")
        self._last = name
        self._set_aside.append(why)
        if len(self._set_aside) == _MOST_SET_ASIDE:
            self._fail(
                UserError(
                    f"{_MOST_SET_ASIDE} datasets in a row cannot be trained, the last one since "
                    f"{why}; correct them, and run the same command again: it begins with the "
                    "first of them"
                )
            )

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _note(self, sentence: str) -> None:
        _log.warning("%s", sentence)
        self.not_taken += 1
        self.notes = [*self.notes, sentence][-_NOTES:]

    def _waited(self) -> str:
        return f"{self.wanted} did not appear within {self.seconds:.0f} s"


def position_of(datasets: Sequence[Mapping[str, Any]]) -> Position | None:
    """The position that a checkpoint keeps; None for one of a run that does not follow."""
    return msgspec.convert(dict(datasets[0]), Position) if is_position(datasets) else None


def is_position(datasets: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what a checkpoint keeps of the data is a position among followed datasets."""
    return bool(datasets) and FOLLOWED in datasets[0]


RunData = TrainingData | FollowedData
