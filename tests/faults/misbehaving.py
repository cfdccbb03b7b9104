"""`trainer.task` in a process whose storage misbehaves.

    LD_PRELOAD=shim.so python -m tests.faults.misbehaving ORDER [FLAG...]

ORDER is the JSON of an object with the arguments of `shim.misbehave`, the fault by its name, and
`patience`: seconds for which what may pass is tried again.
"""

import json
import sys

import tensorflow as tf

from tests import unrolling
from tests.faults import shim
from tfps.storage import failures
from trainer import entry, task
from trainer.flags import experiment_flags


def main() -> None:
    """Misbehaves as it was told from here on, and trains."""
    order = json.loads(sys.argv.pop(1))
    failures.PATIENCE_SECONDS = order.pop("patience")
    unrolling.set_to(1)
    # Better graphs would cost more than they save.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    shim.misbehave(fault=shim.FAULTS.get(order.pop("fault"), shim.NOTHING), **order)
    entry.run(task.main, has_lasting_threads=True, rewritten=experiment_flags.take)


if __name__ == "__main__":
    main()
