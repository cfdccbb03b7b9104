"""What a program leaves to itself when it begins again."""

import dataclasses
import json
import os
import time
from collections.abc import Mapping, Sequence

from tfps.cluster.monitor import Failure
from tfps.coordinator.coordinator import Recoveries
from trainer.chief import restart
from trainer.chief.worker_changes import WorkerChanges

_VARIABLE = "TFPS_HANDOVER"
_NAME = "tfps-handover"


@dataclasses.dataclass(frozen=True)
class RestartState:
    """What is known of a run, beside its checkpoints, before this program goes on with it.

    It is left in a file without a name, which this process alone has open and which ends with it:
    an environment variable, which holds the file's number, may not be as long.

    Attributes:
        began: When the run did, on the monotonic clock, which is one for all programs of a machine.
    """

    recoveries: Recoveries = dataclasses.field(default_factory=Recoveries)
    failures: Sequence[Failure] = ()
    began: float = dataclasses.field(default_factory=time.monotonic)
    failures_by_job: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changes: WorkerChanges = dataclasses.field(default_factory=WorkerChanges)

    @classmethod
    def found(cls) -> "RestartState":
        """What the program before left; where there was none, that of a run that begins now."""
        file = int(os.environ.get(_VARIABLE, "-1"))
        if not _is_own(file):  # a program that was started by another one has its environment
            return cls()
        data = json.loads(os.pread(file, os.fstat(file).st_size, 0))
        return cls(
            Recoveries.from_json(data["recoveries"]),
            [Failure.from_json(each) for each in data["failures"]],
            data["began"],
            data["failures_by_job"],
            WorkerChanges.from_json(data["changes"]),
        )

    def leave(self) -> None:
        """Leaves it to the program that goes on in this process."""
        data = {
            "recoveries": self.recoveries.to_json(),
            "failures": [each.to_json() for each in self.failures],
            "began": self.began,
            "failures_by_job": dict(self.failures_by_job),
            "changes": self.changes.to_json(),
        }
        file = os.memfd_create(_NAME)
        with os.fdopen(file, "w", closefd=False) as writer:
            json.dump(data, writer)
        restart.keep_open(file)
        os.environ[_VARIABLE] = str(file)


def _is_own(file: int) -> bool:
    """Whether a number is that of a file that `leave` has made."""
    try:
        return os.readlink(f"/proc/self/fd/{file}").startswith(f"/memfd:{_NAME} ")
    except FileNotFoundError:
        return False
