"""How the updates of a job's workers come together: a class for each mode, with its settings."""

import dataclasses
import logging
from typing import ClassVar

from tfps import arguments
from tfps.cluster.spec import Cluster
from tfps.errors import UserError

_log = logging.getLogger(__name__)


class Mode:
    """What all modes have."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        arguments.check_fields(self, "mode.")

    def unrecorded_batches(self, pipeline_depth: int, sync_every: int) -> int:
        """Batches a lost worker may have pushed unrecorded; `sync_every` is `LocalSGD`'s."""
        if isinstance(self, Sync):
            return 0
        if isinstance(self, LocalSGD):
            return sync_every
        if isinstance(self, Bounded):  # a batch is recorded before the next one may be trained
            return 1
        return pipeline_depth + (self.batches_per_exchange if isinstance(self, Async) else 1)

    def _refuse_less(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise UserError(f"mode.{name}={getattr(self, name)} must be {least} or more")


@dataclasses.dataclass(frozen=True)
class Async(Mode):
    """Every worker's gradients are applied as they come; the default with ps.

    Attributes:
        staleness_power: An update of staleness s has (1 + s)^-power times the learning rate (1:
            Zhang et al., IJCAI 2016; any: Xie et al., 2019); 0 leaves it alone.
        batches_per_exchange: For how many batches a worker pulls at once, and pushes their
            gradients at once; a ps applies them one after the other.
    """

    name: ClassVar[str] = "async"
    staleness_power: float = 0.0
    batches_per_exchange: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_less("staleness_power", 0)
        self._refuse_less("batches_per_exchange", 1)


@dataclasses.dataclass(frozen=True)
class Sync(Mode):
    """The gradients of all workers are averaged and applied once, in rounds.

    Attributes:
        backup_workers: So many of the workers are not waited for: a round closes with the gradients
            of the first of the others.
        round_seconds: How long others wait for a worker that is lost.
    """

    name: ClassVar[str] = "sync"
    backup_workers: int = 0
    round_seconds: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_less("backup_workers", 0)
        _check_round_seconds(self.round_seconds)


@dataclasses.dataclass(frozen=True)
class Bounded(Mode):
    """As `Async`, but a worker that is too many steps ahead of the slowest waits.

    Attributes:
        max_staleness: How many steps a worker may be ahead of the slowest.
        round_seconds: How long others wait for a worker that is lost.
    """

    name: ClassVar[str] = "bounded"
    max_staleness: int = 4
    round_seconds: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_less("max_staleness", 0)
        _check_round_seconds(self.round_seconds)


@dataclasses.dataclass(frozen=True)
class LocalSGD(Mode):
    """Workers make a few steps by themselves and push the difference.

    Attributes:
        sync_every: Steps between a pull and its push; 0 for as many as keep what exchanges cost
            below a tenth of a worker's time, as measured in the first leases.
    """

    name: ClassVar[str] = "local_sgd"
    sync_every: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_less("sync_every", 0)


@dataclasses.dataclass(frozen=True)
class AllReduce(Mode):
    """As `Sync` without ps: chief and workers each have a copy of the parameters."""

    name: ClassVar[str] = "allreduce"


@dataclasses.dataclass(frozen=True)
class Local(Mode):
    """One process without a cluster."""

    name: ClassVar[str] = "local"


_ALL: tuple[type[Async | Sync | Bounded | LocalSGD | AllReduce | Local], ...]
_ALL = (Async, Sync, Bounded, LocalSGD, AllReduce, Local)
MODES = {mode.name: mode for mode in _ALL}


def suited(mode: Mode | None, cluster: Cluster) -> Mode:
    """The mode of a run on a cluster; for None the usual one of such a cluster."""
    mode = mode or _usual(cluster)
    _check_cluster(mode, cluster)
    if isinstance(mode, Sync) and mode.backup_workers >= max(1, len(cluster.workers)):
        raise UserError(
            f"--mode.backup_workers={mode.backup_workers} of {len(cluster.workers)} workers: a "
            "round needs one that is waited for; have fewer backup workers"
        )
    if isinstance(mode, Bounded) and not mode.max_staleness:
        _log.info("--mode.name=bounded with max_staleness=0 is --mode.name=sync, and runs as such")
        return Sync(round_seconds=mode.round_seconds)
    return mode


def _usual(cluster: Cluster) -> Mode:
    if cluster.is_local:
        return Local()
    return AllReduce() if cluster.is_replicated else Async()


def _check_cluster(mode: Mode, cluster: Cluster) -> None:
    where = f"--mode.name={mode.name}"
    if not isinstance(mode, Local) and cluster.is_local:
        raise UserError(
            f"{where} needs a cluster, but TF_CONFIG names none; use --mode.name=local, or start "
            "a local cluster with python -m cloud.local"
        )
    if isinstance(mode, Local) and not cluster.is_local:
        raise UserError(f"{where}, but TF_CONFIG names a cluster; unset one of them")
    if isinstance(mode, AllReduce) and cluster.ps:
        raise UserError(
            f"{where} trains without ps, but TF_CONFIG names {len(cluster.ps)}; leave them out of "
            "the cluster, or choose another mode"
        )
    if not isinstance(mode, AllReduce) and cluster.is_replicated:
        raise UserError(
            f"{where} needs a ps, but TF_CONFIG names {len(cluster.workers)} workers and no ps; "
            "add one, or use --mode.name=allreduce"
        )


def _check_round_seconds(seconds: float) -> None:
    if seconds <= 0:
        raise UserError(f"mode.round_seconds={seconds} must be positive")
