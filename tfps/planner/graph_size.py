"""How large the training closure's graph is, and what it costs: pure data, nothing is traced.

Each ps adds its operations to every step that the closure is unrolled into. What a node costs was
measured once (docs/design.md).
"""

import dataclasses

from tfps.store.packing import MOST_PS

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


@dataclasses.dataclass(frozen=True)
class GraphSize:
    """An estimate of the training closure's graph on a cluster."""

    ps: int
    workers: int
    groups: int

    @property
    def nodes_per_ps(self) -> int:
        """Operations on one ps."""
        packing = _NODES_TO_PACK if self.ps <= MOST_PS else 0
        return _NODES_OF_DENSE + _NODES_PER_GROUP * self.groups + packing

    @property
    def total_bytes(self) -> int:
        """Bytes of the GraphDef."""
        return _OTHER_BYTES + _NODE_BYTES * self.nodes_per_ps * self.ps

    @property
    def sent_bytes(self) -> int:
        """Bytes that the chief sends: every task is told of the whole graph."""
        return self.total_bytes * (self.ps + self.workers)

    @property
    def chief_cpu_seconds(self) -> float:
        """CPU time of the chief for what the ps add, to trace it."""
        return _NODE_CPU_SECONDS * self.nodes_per_ps * self.ps

    @property
    def ps_bytes(self) -> int:
        """Memory of each ps beyond that of a cluster of one ps and one worker.

        It holds the description of the whole graph, and runs its own part once for each worker.
        """
        described = _HELD_PER_BYTE * _NODE_BYTES * (self.ps - 1)
        return self.nodes_per_ps * (described + _NODE_HELD_BYTES * (self.workers - 1))

    @property
    def worker_bytes(self) -> int:
        """Memory of each worker beyond that of a cluster of one ps."""
        return _HELD_PER_BYTE * _NODE_BYTES * self.nodes_per_ps * (self.ps - 1)
