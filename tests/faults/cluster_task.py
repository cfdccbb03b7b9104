r"""`trainer.task` as a task of a cluster, some of which meet a fault of their storage.

    LD_PRELOAD=shim.so TFPS_STORAGE_FAULT=ORDER \
      python -m cloud.local --module=tests.faults.cluster_task …

ORDER is the JSON of an object with the arguments of `shim.misbehave`, the fault by its name, and
`job`: whose tasks meet it.
"""

import json
import os

from tests.faults import shim
from trainer import entry, task
from trainer.flags import experiment_flags

ORDER = "TFPS_STORAGE_FAULT"


def main() -> None:
    """Misbehaves if this task is one of those that should, and trains or serves."""
    order = json.loads(os.environ[ORDER])
    job, fault = order.pop("job"), order.pop("fault")
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == job:
        shim.misbehave(fault=shim.FAULTS[fault], **order)
    entry.run(task.main, has_lasting_threads=True, rewritten=experiment_flags.take)


if __name__ == "__main__":
    main()
