"""The datasets of a run's epochs."""

import bisect
import dataclasses
import functools
import re
from typing import Any, ClassVar, Self

from tfps.data.manifest import Manifest
from tfps.data.shards import Shard
from tfps.errors import UserError

_EPOCH = re.compile(r"\{epoch(?::0(\d))?\}")


def directories(named: str, epochs: int) -> tuple[str, ...]:
    """The directories of the datasets that a run's epochs train, from the first epoch on.

    `data.train` names a directory, some with commas between them, or a pattern with the epoch's
    number from 1, `{epoch}`, or `{epoch:02}` for two digits and more.
    """
    found = named.split(",")
    if len(found) > 1 and not all(found):
        raise UserError(
            f"--data.train={named}: a directory between two commas has no name; leave the comma out"
        )
    if any(map(is_pattern, found)):
        if len(found) > 1:
            raise UserError(
                f"--data.train={named}: a pattern with {{epoch}} stands alone, and names the "
                "datasets of all epochs; leave the others out, or name each dataset"
            )
        return tuple(numbered(named, epoch) for epoch in range(1, epochs + 1))
    if len(found) > epochs:
        raise UserError(
            f"--data.train names {len(found)} datasets, one for each epoch, and train.epochs="
            f"{epochs}: the last {len(found) - epochs} would never be trained; set "
            f"--train.epochs={len(found)}, or name fewer"
        )
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What the epochs of a run train; shards are numbered over all datasets, in their order."""

    is_followed: ClassVar[bool] = False
    datasets: tuple[Manifest, ...]
    order: tuple[int, ...]  # the dataset of each epoch; further epochs begin again

    @classmethod
    def of(cls, *of_epochs: Manifest) -> Self:
        """The data of a run; two epochs may train the same dataset."""
        datasets = {data.directory: data for data in of_epochs}
        places = {directory: index for index, directory in enumerate(datasets)}
        order = tuple(places[data.directory] for data in of_epochs)
        return cls(tuple(datasets.values()), order)

    def of_epoch(self, epoch: int) -> Manifest:
        """The dataset that an epoch, counted from 0, trains."""
        return self.datasets[self._index_of(epoch)]

    def shards_of(self, epoch: int) -> list[tuple[int, Shard]]:
        """The shards of an epoch, counted from 0, with their numbers."""
        index = self._index_of(epoch)
        return list(enumerate(self.datasets[index].shards, self._first_shards[index]))

    def find(self, shard: int) -> tuple[Manifest, int]:
        """The dataset that holds a shard, and its place among the dataset's."""
        index = bisect.bisect_right(self._first_shards, shard) - 1
        return self.datasets[index], shard - self._first_shards[index]

    def goes_on(self, epoch: int) -> bool:
        """Whether an epoch begins while the one before is still trained."""
        return False

    def records_from(self, epoch: int) -> int:
        """Records that are trained without a pause when an epoch, counted from 0, begins."""
        return self.of_epoch(epoch).records

    def progress(self, epoch: int, examples: int) -> tuple[int, int]:
        """How many records of an epoch are trained, `examples` in all, and how many it has."""
        return examples - self.records_before(epoch), self.of_epoch(epoch).records

    def records_in(self, epochs: int) -> int | None:
        """Records that a run trains; None where that is not known."""
        return self.records_before(epochs)

    def records_before(self, epoch: int) -> int:
        """Records that are trained when an epoch, counted from 0, begins."""
        rounds, more = divmod(epoch, len(self.order))
        of_round = [self.of_epoch(each).records for each in range(len(self.order))]
        return rounds * sum(of_round) + sum(of_round[:more])

    def identities(self, epoch: int = 0, is_begun: bool = False) -> tuple[dict[str, Any], ...]:
        """What a checkpoint keeps of the data; its place among the epochs does not matter."""
        return tuple(self.datasets[index].identity for index in self.order)

    def _index_of(self, epoch: int) -> int:
        return self.order[epoch % len(self.order)]

    @functools.cached_property
    def _first_shards(self) -> list[int]:
        counts = [len(data.shards) for data in self.datasets]
        return [sum(counts[:index]) for index in range(len(counts))]


def is_pattern(named: str) -> bool:
    """Whether a name of datasets has their number in it."""
    return bool(_EPOCH.search(named))


def numbered(pattern: str, number: int) -> str:
    """The directory that a pattern names for a dataset, counted from 1."""
    return _EPOCH.sub(lambda found: str(number).zfill(int(found[1] or 0)), pattern)
