"""What a program leaves to itself when it begins anew."""

import dataclasses
import json
import os
import time
from collections.abc import Sequence

from tfps.recoveries import Recoveries
from tfps.task_watch import Failure

_VARIABLE = "TFPS_HANDOVER"


@dataclasses.dataclass(frozen=True)
class Handover:
    """What is known of a run, beside its checkpoints, before this program goes on with it.

    Attributes:
        recoveries: Those so far.
        failures: Tasks that were lost.
        began: When the run did, on the monotonic clock, which is one for all programs of a machine.
    """

    recoveries: Recoveries = dataclasses.field(default_factory=Recoveries)
    failures: Sequence[Failure] = ()
    began: float = dataclasses.field(default_factory=time.monotonic)

    @classmethod
    def found(cls) -> "Handover":
        """What the program before left; where there was none, that of a run that begins now."""
        text = os.environ.get(_VARIABLE)
        if not text:
            return cls()
        data = json.loads(text)
        return cls(
            Recoveries.from_json(data["recoveries"]),
            [Failure(**each) for each in data["failures"]],
            data["began"],
        )

    def leave(self) -> None:
        """Leaves it to the program that goes on in this process."""
        data = {
            "recoveries": self.recoveries.to_json(),
            "failures": [dataclasses.asdict(each) for each in self.failures],
            "began": self.began,
        }
        os.environ[_VARIABLE] = json.dumps(data)
