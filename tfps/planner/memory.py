"""What lands on which ps, and the memory and disk that it takes: pure data, no ps is asked."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence

from tfps import byte_size
from tfps.errors import UserError
from tfps.experiment.experiment import FLOAT32, INT8
from tfps.store.layout import WHOLE_BYTES, StoreLayout, groups_in_slices
from tfps.store.messages import MOST_PS

# Of a closure unrolled into ten steps and one, with Adam, whose rule has the most operations: for
# the dense parameters of a ps, and for each group of tables, whose rows catch up as well.
_NODES_OF_DENSE, _NODES_PER_GROUP = 300, 600
# What puts tensors together that go to a ps or come from it, where the ps are few.
_NODES_TO_PACK = 250
_OTHER_BYTES = 450_000  # of the GraphDef: the model, reading
_NODE_BYTES = 170
_NODE_CPU_SECONDS = 0.5e-3  # of the chief, to trace it
_HELD_PER_BYTE = 11  # bytes of memory for each byte of the GraphDef, on every task
_NODE_HELD_BYTES = 7_500  # on the ps of the node, for each worker
_VALUE = 4  # bytes of a float32
_NUMBER = 4  # bytes of a row's last update
# A ps of a tiny model, TensorFlow loaded and connected; tests/integration/test_wire.py measures it.
PROCESS_BYTES = 640 << 20
# What a save, a restore, the drawing of initial rows and pushes of tables hold for a moment; all
# of them work in chunks or on a batch's rows, whatever the size of a table.
WORKING_BYTES = 384 << 20
_VALUE_BYTES = {FLOAT32: 4, INT8: 1, "bfloat16": 2}
_COPIES = (
    3  # of what one process holds: as read, in the model, and in the model that is loaded again
)
_PARTS = {
    "export": "{} of it for the model that is exported (--train.export=none exports none)",
    "export with tables": "{} of it for the model that is exported (--train.export=none exports "
    "none, and --train.export_dtype=bfloat16 or int8 holds no table for it)",
    "worker": "{} of it for the worker next to it (--nochief_works leaves that out)",
    "parameters": "{} of it for parameters, which several ps would share (--workers and --ps of "
    "python -m cloud.local, or a cluster)",
}


@dataclasses.dataclass(frozen=True)
class GraphSize:
    """An estimate of the training closure's graph on a cluster."""

    ps: int
    workers: int
    groups: int

    @property
    def nodes_per_ps(self) -> int:
        packing = _NODES_TO_PACK if self.ps <= MOST_PS else 0
        return _NODES_OF_DENSE + _NODES_PER_GROUP * self.groups + packing

    @property
    def total_bytes(self) -> int:
        """Bytes of the GraphDef."""
        return _OTHER_BYTES + _NODE_BYTES * self.nodes_per_ps * self.ps

    @property
    def sent_bytes(self) -> int:
        """Bytes that the chief sends: every task gets the whole graph."""
        return self.total_bytes * (self.ps + self.workers)

    @property
    def chief_cpu_seconds(self) -> float:
        """CPU time of the chief to trace what the ps add."""
        return _NODE_CPU_SECONDS * self.nodes_per_ps * self.ps

    @property
    def ps_bytes(self) -> int:
        """Memory of each ps beyond that of a cluster of one ps and one worker."""
        # It holds the description of the whole graph, and runs its own part once for each worker.
        described = _HELD_PER_BYTE * _NODE_BYTES * (self.ps - 1)
        return self.nodes_per_ps * (described + _NODE_HELD_BYTES * (self.workers - 1))

    @property
    def worker_bytes(self) -> int:
        """Memory of each worker beyond that of a cluster of one ps."""
        return _HELD_PER_BYTE * _NODE_BYTES * self.nodes_per_ps * (self.ps - 1)


@dataclasses.dataclass(frozen=True)
class Share:
    """What one ps holds of one buffer."""

    name: str
    ps: int
    rows: int
    parameter_bytes: int
    slot_bytes: int
    mark_bytes: int  # that say which rows were touched, and when each was updated last
    fraction: float  # of the whole buffer's bytes, 0 to 1

    @property
    def total_bytes(self) -> int:
        return self.parameter_bytes + self.slot_bytes + self.mark_bytes


@dataclasses.dataclass(frozen=True)
class Placement:
    """The shares of all ps."""

    ps: int
    workers: int  # their pulls and pushes take memory while they are under way
    shares: tuple[Share, ...]
    graph: GraphSize
    in_background: bool = False

    @classmethod
    def of(cls, layout: StoreLayout, workers: int, in_background: bool = False) -> "Placement":
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
        """For each worker, the dense parameters it is being sent and the gradient it sends."""
        # An update that finds the dense parameters being read writes to a new buffer.
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
    """Refuses a placement that needs more than `limit` bytes on a ps."""
    over = _over(layout, workers, limit, in_background)
    if over <= 0:
        return
    enough = _enough(layout, workers, limit, in_background)
    own = _own_bytes(_graph(layout, workers))
    fix = (
        f"{enough} ps of that memory would do"
        if enough
        else f"no number of ps would do, since each needs {byte_size.show(own)} without its "
        "parameters: give the ps more memory"
    )
    if in_background and _over(layout, workers, limit, False) <= 0:
        fix += "; so would train.checkpoint_in_background=false, with which workers wait for saves"
    raise UserError(
        f"--ps_memory={byte_size.show(limit)}: each of {layout.parts} ps needs up to "
        f"{byte_size.show(limit + over)}, {byte_size.show(over)} too much; {fix}"
    )


def _enough(layout: StoreLayout, workers: int, limit: int, in_background: bool) -> int | None:
    """The least number of ps that would do; None for none, since each adds to all others' graph."""
    parts = layout.parts + 1
    while _own_bytes(_graph(more := layout.over(parts), workers)) < limit:
        if _over(more, workers, limit, in_background) <= 0:
            return parts
        parts += 1
    return None


def _graph(layout: StoreLayout, workers: int) -> GraphSize:
    return GraphSize(layout.parts, workers, len(layout.groups))


def _own_bytes(graph: GraphSize) -> int:
    """Bytes that a ps needs in addition to its parameters."""
    return graph.ps_bytes + WORKING_BYTES + PROCESS_BYTES


def _over(layout: StoreLayout, workers: int, limit: int, in_background: bool) -> int:
    """Bytes by which the fullest ps exceeds the limit; negative when it fits."""
    # The fullest is the last: of everything that is cut, its part is rounded up.
    shares = _shares(layout, layout.parts - 1)
    return _needed(shares, _graph(layout, workers), in_background) - limit


def _held(shares: Sequence[Share]) -> int:
    return sum(share.total_bytes for share in shares)


def _in_flight(shares: Sequence[Share], workers: int) -> int:
    return 2 * workers * sum(s.parameter_bytes for s in shares if s.name == "dense")


def _needed(shares: Sequence[Share], graph: GraphSize, in_background: bool) -> int:
    held = _held(shares) * (2 if in_background else 1)
    return held + _in_flight(shares, graph.workers) + _own_bytes(graph)


def _shares(layout: StoreLayout, part: int) -> list[Share]:
    """What one ps holds, without buffers that are elsewhere."""
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


@dataclasses.dataclass(frozen=True)
class ExportSize:
    """An exported model."""

    file_bytes: int  # at least
    whole_bytes: int
    in_slices: tuple[str, ...]  # names of the groups of tables that it does not hold
    dtype: str

    @classmethod
    def of(cls, layout: StoreLayout, dtype: str = FLOAT32) -> "ExportSize":
        indices = groups_in_slices(layout, WHOLE_BYTES if dtype == FLOAT32 else 0)
        dense = 4 * (layout.dense.total + layout.state.whole.total)
        in_slices = whole = 0
        for index, group in enumerate(layout.groups):
            rows, dim = group.layout.total_rows, group.layout.dim
            if index in indices:
                in_slices += rows * (dim * _VALUE_BYTES[dtype] + (4 if dtype == INT8 else 0))
            else:
                whole += sum(table.rows for table in group.layout.tables) * dim * 4
        names = tuple(layout.groups[index].layout.name for index in indices)
        return cls(dense + whole + in_slices, dense + whole, names, dtype)

    @property
    def held_bytes(self) -> int:
        """What the process that exports it holds of it at its peak."""
        return _COPIES * self.whole_bytes

    @property
    def process_bytes(self) -> int:
        """Memory of the process that exports it."""
        return PROCESS_BYTES + WORKING_BYTES + self.held_bytes


def evaluator_bytes(placement: Placement, size: ExportSize) -> int:
    """Memory of an evaluator, which holds whole checkpoints."""
    return placement.all_bytes + size.process_bytes


def worker_bytes(placement: Placement) -> int:
    """Memory of a worker without its batches."""
    return PROCESS_BYTES + placement.graph.worker_bytes


@dataclasses.dataclass(frozen=True)
class ChiefMemory:
    """What the chief's machine needs, of a cluster or of a job in one process."""

    process_bytes: int
    parameter_bytes: int
    export_bytes: int  # held for a moment; 0 where none is exported
    tables_in_slices: bool
    worker_bytes: int

    @classmethod
    def of(
        cls, placement: Placement, export: ExportSize | None, has_parameters: bool, works: bool
    ) -> "ChiefMemory":
        process = PROCESS_BYTES + WORKING_BYTES
        return cls(
            process_bytes=process,
            parameter_bytes=placement.needed_bytes(0) - process if has_parameters else 0,
            export_bytes=export.held_bytes if export else 0,
            tables_in_slices=export is not None and export.dtype != FLOAT32,
            worker_bytes=worker_bytes(placement) if works else 0,
        )

    @property
    def needed_bytes(self) -> int:
        held = self.parameter_bytes + self.export_bytes + self.worker_bytes
        return self.process_bytes + held

    def check(self, limit: int, who: str) -> None:
        """Refuses a machine that may have less."""
        if self.needed_bytes <= limit:
            return
        export = "export" if self.tables_in_slices else "export with tables"
        parts = {
            "parameters": self.parameter_bytes,
            export: self.export_bytes,
            "worker": self.worker_bytes,
        }
        uses = [_PARTS[part].format(byte_size.show(size)) for part, size in parts.items() if size]
        raise UserError(
            f"{who} needs about {byte_size.show(self.needed_bytes)}, but may have "
            f"{byte_size.show(limit)}; give it more memory, or have it need less"
            + "".join(f"; {each}" for each in uses)
        )


@dataclasses.dataclass(frozen=True)
class JobDisk:
    """What a job that trains keeps on the disk of its job_dir."""

    checkpoint_bytes: int
    checkpoints: int
    export_bytes: int  # of a version; 0 where none is exported there
    exports: int
    delta_bytes: int = 0  # of a version's two newest deltas at most

    @classmethod
    def of(
        cls,
        layout: StoreLayout,
        keep_checkpoints: int,
        export_bytes: int,
        keep_exports: int,
        largest_delta: float = 0.0,  # part of a checkpoint
    ) -> "JobDisk":
        checkpoint = Placement.of(layout, workers=1).all_bytes
        exports = keep_exports + 1 if export_bytes else 0
        deltas = 2 * min(export_bytes, int(largest_delta * checkpoint))
        return cls(checkpoint, keep_checkpoints + 1, export_bytes, exports, deltas)

    @property
    def at_once(self) -> dict[str, int]:
        """What must have room for any of it to be of use: bytes by name, for messages."""
        export = {"the export": self.export_bytes} if self.export_bytes else {}
        return {"a checkpoint": self.checkpoint_bytes, **export}

    @property
    def all_bytes(self) -> int:
        """Bytes that are kept in the end, and those that are being written."""
        exports = self.exports * (self.export_bytes + self.delta_bytes)
        return self.checkpoints * self.checkpoint_bytes + exports

    def __str__(self) -> str:
        """For people, as `4 checkpoints of 2 GiB and 3 exports of 1 GiB, 11 GiB in all`."""
        said = f"{self.checkpoints} checkpoints of {byte_size.show(self.checkpoint_bytes)}"
        if self.exports:
            said += f" and {self.exports} exports of {byte_size.show(self.export_bytes)}"
            if self.delta_bytes:
                said += f" with deltas of up to {byte_size.show(self.delta_bytes)}"
        return f"{said}, {byte_size.show(self.all_bytes)} in all"


def free_bytes(directory: str) -> int | None:
    """Bytes that are free where a directory lies; None in a bucket, which has room."""
    return None if "://" in directory else shutil.disk_usage(directory).free


def check_disk_space(job_dir: str, needed: Mapping[str, int]) -> None:
    """Refuses a local job_dir without room for what is written there, bytes by name."""
    free = free_bytes(job_dir)
    if free is None or sum(needed.values()) <= free:
        return
    takes = " and ".join(f"{what} takes {byte_size.show(size)}" for what, size in needed.items())
    raise UserError(
        f"--job_dir={job_dir}: {takes}, but its disk has {byte_size.show(free)} left; delete what "
        "is not needed, or name a directory on another disk"
    )
