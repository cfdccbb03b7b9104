"""How the updates of a job's workers come together."""

import dataclasses
import logging

from tfps import arguments
from tfps.cluster.spec import Cluster
from tfps.errors import UserError

ASYNC, SYNC, BOUNDED = "async", "sync", "bounded"
LOCAL_SGD, ALLREDUCE, LOCAL = "local_sgd", "allreduce", "local"
MODES = (ASYNC, SYNC, BOUNDED, LOCAL_SGD, ALLREDUCE, LOCAL)
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Mode:
    """A mode with its settings.

    Attributes:
        name: `async`: every worker's gradients are applied as they come. `sync`: those of all
            workers are averaged and applied once, in rounds. `bounded`: as `async`, but a worker
            that is too many steps ahead of the slowest waits. `local_sgd`: workers make a few steps
            by themselves and push the difference. `allreduce`: as `sync` without ps, chief and
            workers each with a copy of the parameters. `local`: one process without a cluster.
            Empty: what suits the cluster, `async` with ps.
        backup_workers: In `sync`, so many of the workers are not waited for: a round closes with
            the gradients of the first of the others.
        max_staleness: In `bounded`, how many steps a worker may be ahead of the slowest.
        staleness_power: In `async`, an update of staleness s has (1 + s)^-power times the learning
            rate (1: Zhang et al., IJCAI 2016; any: Xie et al., 2019); 0 leaves it alone.
        sync_every: In `local_sgd`, steps between a pull and its push; 0 for as many as keep what
            exchanges cost below a tenth of a worker's time, which the first leases tell.
        batches_per_exchange: In `async`, for how many batches a worker pulls at once, and pushes
            their gradients at once; a ps applies them one after the other.
        round_seconds: In `sync` and `bounded`, how long others wait for a worker that is lost.
    """

    name: str = ""
    backup_workers: int = 0
    max_staleness: int = 4
    staleness_power: float = 0.0
    sync_every: int = 8
    batches_per_exchange: int = 1
    round_seconds: float = 10.0

    def __post_init__(self) -> None:
        arguments.check_fields(self, "mode.")
        if self.name and self.name not in MODES:
            raise UserError(f"mode.name={self.name} must be one of {', '.join(MODES)}")
        if self.backup_workers < 0:
            raise UserError(f"mode.backup_workers={self.backup_workers} must be 0 or more")
        if self.max_staleness < 0:
            raise UserError(f"mode.max_staleness={self.max_staleness} must be 0 or more")
        if self.staleness_power < 0:
            raise UserError(f"mode.staleness_power={self.staleness_power} must be 0 or more")
        if self.sync_every < 0:
            raise UserError(
                f"mode.sync_every={self.sync_every} must be at least 1, or 0 to be chosen"
            )
        if self.batches_per_exchange < 1:
            raise UserError(
                f"mode.batches_per_exchange={self.batches_per_exchange} must be at least 1"
            )
        if self.round_seconds <= 0:
            raise UserError(f"mode.round_seconds={self.round_seconds} must be positive")

    def on(self, cluster: Cluster) -> "Mode":
        """The mode of a run on a cluster, always with a name.

        Raises:
            UserError: If the cluster, or a setting, does not suit the mode.
        """
        mode = dataclasses.replace(self, name=self.name or _usual(cluster))
        if mode.name != LOCAL and cluster.is_local:
            raise UserError(
                f"--mode={mode.name} needs a cluster, but TF_CONFIG names none; use --mode=local, "
                "or start a local cluster with python -m cloud.local"
            )
        if mode.name == LOCAL and not cluster.is_local:
            raise UserError("--mode=local, but TF_CONFIG names a cluster; unset one of them")
        if mode.name == ALLREDUCE and cluster.ps:
            raise UserError(
                f"--mode=allreduce trains without ps, but TF_CONFIG names {len(cluster.ps)}; leave "
                "them out of the cluster, or choose another mode"
            )
        if mode.name != ALLREDUCE and cluster.is_replicated:
            raise UserError(
                f"--mode={mode.name} needs a ps, but TF_CONFIG names {len(cluster.workers)} "
                "workers and no ps; add one, or use --mode=allreduce"
            )
        if mode.backup_workers and mode.name != SYNC:
            raise UserError(
                f"--backup_workers={mode.backup_workers}: only --mode=sync has workers that are "
                f"not waited for, not {mode.name}; leave it out"
            )
        if mode.staleness_power and mode.name != ASYNC:
            raise UserError(
                f"--staleness_power={mode.staleness_power}: only --mode=async has learning rates "
                f"by staleness, not {mode.name}; leave it out"
            )
        if mode.batches_per_exchange > 1 and mode.name != ASYNC:
            raise UserError(
                f"--batches_per_exchange={mode.batches_per_exchange}: only --mode=async pulls for "
                f"several batches and keeps their gradients apart, not {mode.name}; leave it out"
            )
        if mode.backup_workers >= max(1, len(cluster.workers)):
            raise UserError(
                f"--backup_workers={mode.backup_workers} of {len(cluster.workers)} workers: a "
                "round needs one that is waited for; have fewer backup workers"
            )
        if mode.name == BOUNDED and not mode.max_staleness:
            _log.info("--mode=bounded with --max_staleness=0 is --mode=sync, and runs as such")
            return dataclasses.replace(mode, name=SYNC)
        return mode

    def unrecorded_batches(self, pipeline_depth: int, sync_every: int) -> int:
        """Batches that a worker, when it is lost, may have pushed without having recorded them.

        Args:
            pipeline_depth: Batches for which it pulls ahead.
            sync_every: Steps that it makes at most between a pull and its push, in `local_sgd`.
        """
        if self.name == SYNC:
            return 0
        if self.name == LOCAL_SGD:
            return sync_every
        # Behind a barrier a batch is recorded before the next one may be trained.
        return 1 if self.name == BOUNDED else self.batches_per_exchange + pipeline_depth

    @property
    def waits(self) -> bool:
        """Whether workers wait for each other."""
        return self.name in (SYNC, BOUNDED)


def _usual(cluster: Cluster) -> str:
    if cluster.is_local:
        return LOCAL
    return ALLREDUCE if cluster.is_replicated else ASYNC
