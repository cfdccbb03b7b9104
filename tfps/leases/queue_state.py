"""How far a queue of leases has come, for a checkpoint to keep."""

import dataclasses
from typing import Any

from tfps.errors import UserError
from tfps.leases.epoch_order import EpochOrder

_SETTINGS = {
    "batch_size": "train.batch_size",
    "shuffle_buffer": "data.shuffle_buffer",
    "seed": "train.seed",
}


@dataclasses.dataclass(frozen=True)
class QueueState:
    """What a checkpoint keeps of a queue.

    Attributes:
        epoch: The epoch being trained, from 0.
        trained: Records trained since the run began, over all epochs.
        order: The order that the cursor counts in; None where an epoch begins.
        bad: Records that were not trained because they are bad, over all epochs.
        bad_records: The bad records that are known, as `BadRecords.state` gives them.
    """

    epoch: int = 0
    cursor: int = 0
    trained: int = 0
    repeated: int = 0
    order: EpochOrder | None = None
    bad: int = 0
    bad_records: tuple[tuple[Any, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "QueueState":
        """From what `to_json` gave."""
        order = EpochOrder(**data["order"]) if data["order"] else None
        return cls(
            data["epoch"],
            data["cursor"],
            data["trained"],
            data["repeated"],
            order,
            data["bad"],
            tuple(map(tuple, data["bad_records"])),
        )

    def refuse_another_order(self, order: EpochOrder) -> None:
        """Checks that a run can go on from here with an order."""
        if self.order is None or self.order == order:
            return
        theirs, ours = dataclasses.asdict(self.order), dataclasses.asdict(order)
        differences = ", ".join(
            f"{setting} was {theirs[name]}, is {ours[name]}"
            for name, setting in _SETTINGS.items()
            if theirs[name] != ours[name]
        )
        raise UserError(
            f"the last checkpoint was saved in the middle of epoch {self.epoch + 1}, whose order "
            f"depends on what has changed: {differences}; set it back until the epoch is trained, "
            "or use another --job_dir"
        )
