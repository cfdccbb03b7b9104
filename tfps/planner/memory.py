"""What lands on which ps, and how much memory each ps needs: pure data, no ps is asked."""

import dataclasses
from collections.abc import Sequence

from tfps import byte_size
from tfps.errors import UserError
from tfps.planner.graph_size import GraphSize
from tfps.store.layout import StoreLayout

_VALUE = 4  # bytes of a float32
_NUMBER = 4  # bytes of a row's last update
# A ps of a tiny model, TensorFlow loaded and connected; tests/integration/test_wire.py measures it.
PROCESS_BYTES = 640 << 20
# What a save, a restore, the drawing of initial rows and pushes of tables hold for a moment; all
# of them work in chunks or on a batch's rows, whatever the size of a table.
WORKING_BYTES = 384 << 20


@dataclasses.dataclass(frozen=True)
class Share:
    """What one ps holds of one buffer.

    Attributes:
        parameter_bytes: Bytes of the parameters.
        slot_bytes: Bytes of the optimizer's slots beside them.
        mark_bytes: Bytes that tell which rows were touched, and when each was updated last.
        fraction: Of the whole buffer's bytes, 0 to 1.
    """

    name: str
    ps: int
    rows: int
    parameter_bytes: int
    slot_bytes: int
    mark_bytes: int
    fraction: float

    @property
    def total_bytes(self) -> int:
        """Parameters, slots and marks."""
        return self.parameter_bytes + self.slot_bytes + self.mark_bytes


@dataclasses.dataclass(frozen=True)
class Placement:
    """The shares of all ps.

    Attributes:
        workers: Number of workers, whose pulls and pushes take memory while they are under way.
    """

    ps: int
    workers: int
    shares: tuple[Share, ...]
    graph: GraphSize
    in_background: bool = False

    @classmethod
    def of(cls, layout: StoreLayout, workers: int, in_background: bool = False) -> "Placement":
        """The placement of a layout's parameters."""
        shares = [share for part in range(layout.parts) for share in _shares(layout, part)]
        return cls(layout.parts, workers, tuple(shares), _graph(layout, workers), in_background)

    @property
    def all_bytes(self) -> int:
        """Parameters, slots and marks of all ps, which a checkpoint holds."""
        return _held(self.shares)

    def held_bytes(self, ps: int) -> int:
        """Parameters, slots and marks of one ps."""
        return _held(self._of(ps))

    def in_flight_bytes(self, ps: int) -> int:
        """For each worker, the dense parameters it is being sent and the gradient it sends.

        An update that finds the dense parameters being read writes to a new buffer.
        """
        return _in_flight(self._of(ps), self.workers)

    def snapshot_bytes(self, ps: int) -> int:
        """What one ps holds once more while a checkpoint is written in the background."""
        return self.held_bytes(ps) if self.in_background else 0

    def needed_bytes(self, ps: int) -> int:
        """Memory that one ps needs at its peak, its process included."""
        return _needed(self._of(ps), self.graph, self.in_background)

    def _of(self, ps: int) -> list[Share]:
        return [share for share in self.shares if share.ps == ps]

    @property
    def imbalance(self) -> float:
        """How much more than the mean the fullest ps holds: 0.05 for 5 % more."""
        held = [self.held_bytes(ps) for ps in range(self.ps)]
        return max(held) * self.ps / sum(held) - 1.0 if sum(held) else 0.0


def check_memory(
    layout: StoreLayout, workers: int, limit: int, in_background: bool = False
) -> None:
    """Refuses a placement that does not fit.

    Args:
        limit: Memory of one ps, bytes.
    """
    over = _over(layout, workers, limit, in_background)
    if over <= 0:
        return
    enough = _enough(layout, workers, limit, in_background)
    beside = _beside(_graph(layout, workers))
    mend = (
        f"{enough} ps of that memory would do"
        if enough
        else f"no number of ps would do, since each needs {byte_size.show(beside)} beside its "
        "parameters: give the ps more memory"
    )
    if in_background and _over(layout, workers, limit, False) <= 0:
        mend += "; so would train.checkpoint_in_background=false, with which workers wait for saves"
    raise UserError(
        f"--ps_memory={byte_size.show(limit)}: each of {layout.parts} ps needs up to "
        f"{byte_size.show(limit + over)}, {byte_size.show(over)} too much; {mend}"
    )


def _enough(layout: StoreLayout, workers: int, limit: int, in_background: bool) -> int | None:
    """The least number of ps that would do; None for none, since each adds to all others' graph."""
    parts = layout.parts + 1
    while _beside(_graph(more := layout.over(parts), workers)) < limit:
        if _over(more, workers, limit, in_background) <= 0:
            return parts
        parts += 1
    return None


def _graph(layout: StoreLayout, workers: int) -> GraphSize:
    return GraphSize(layout.parts, workers, len(layout.groups))


def _beside(graph: GraphSize) -> int:
    """Bytes that a ps needs beside its parameters, however few."""
    return graph.ps_bytes + WORKING_BYTES + PROCESS_BYTES


def _over(layout: StoreLayout, workers: int, limit: int, in_background: bool) -> int:
    """Bytes by which the fullest ps exceeds the limit; negative when it fits.

    The fullest is the last: of everything that is cut, its part is rounded up.
    """
    shares = _shares(layout, layout.parts - 1)
    return _needed(shares, _graph(layout, workers), in_background) - limit


def _held(shares: Sequence[Share]) -> int:
    return sum(share.total_bytes for share in shares)


def _in_flight(shares: Sequence[Share], workers: int) -> int:
    return 2 * workers * sum(s.parameter_bytes for s in shares if s.name == "dense")


def _needed(shares: Sequence[Share], graph: GraphSize, in_background: bool) -> int:
    held = _held(shares) * (2 if in_background else 1)
    return held + _in_flight(shares, graph.workers) + _beside(graph)


def _shares(layout: StoreLayout, part: int) -> list[Share]:
    """What one ps holds, buffers of which it holds nothing left out."""
    found = []
    first, end = layout.dense.bounds(part)
    slots = _VALUE * len(layout.dense_rule.slots)
    found.append(_share("dense", part, end - first, layout.dense.total, _VALUE, slots))
    if part == layout.parts - 1:
        state = layout.state.whole.total
        found.append(_share("state", part, state, state, _VALUE, 0))
    for group in layout.groups:
        first, end = group.layout.bounds(part)
        whole, row = group.layout.total_rows, group.row
        marks = group.layout.mark_bytes(row.bytes) + _NUMBER * group.catches_up
        of_slots = row.bytes - row.value_bytes
        held = row.value_bytes, of_slots, marks
        found.append(_share(group.layout.name, part, end - first, whole, *held))
    return [share for share in found if share.rows]


def _share(
    name: str, part: int, rows: int, whole: int, values: int, slots: int, marks: int = 0
) -> Share:
    """What a ps holds of a buffer, given the bytes of a row's values, its slots and marks."""
    fraction = rows / whole if whole else 0.0
    return Share(name, part, rows, rows * values, rows * slots, rows * marks, fraction)
