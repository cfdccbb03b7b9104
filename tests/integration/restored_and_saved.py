"""A job whose chief trains nothing: it restores a checkpoint, evaluates it and saves it elsewhere.

python -m cloud.local --module=tests.integration.restored_and_saved -- --copy_to=DIR …
"""

import os
import sys

from absl import flags

from tfps.cluster.tf_config import decode
from tfps.job_dir import JobDir
from trainer import entry, task
from trainer.flags import experiment_flags

flags.DEFINE_string("copy_to", None, "Job_dir of the copy.")


def main() -> int:
    """Acts as the chief; another task does what it always does."""
    cluster = decode(os.environ)
    if cluster.job != "chief":
        return task.main()
    task._set_up_tensorflow()
    from tfps.checkpoint import saver
    from tfps.checkpoint.checkpoint import Draft
    from tfps.checkpoint.directory import CheckpointDirectory, OldCheckpoints, Retention
    from tfps.checkpoint.restore import restore_newest
    from tfps.checkpoint.writer import CheckpointWriter
    from tfps.cluster.monitor import TaskMonitor
    from tfps.coordinator.connector import Connector
    from tfps.evaluation.history import Evaluations
    from trainer.chief.engine import Engine
    from trainer.chief.run_inputs import RunInputs, RunSettings

    job_dir = JobDir(flags.FLAGS.job_dir)
    inputs = RunInputs.check(RunSettings(experiment_flags.experiment(), cluster, job_dir))
    executor = Connector(cluster, job_dir, 120.0, min_workers=0, again=False, memory={}).connect()
    engine = Engine.build(inputs, executor, TaskMonitor({}), 120.0)
    restored, passed_over = restore_newest(
        CheckpointDirectory(job_dir), engine.store, inputs.data.train.identities()
    )
    assert restored is not None
    assert passed_over == {}
    draft = Draft.of(engine.store, restored.queue, restored.datasets)
    writer = CheckpointWriter(engine.store.slices())
    copies = CheckpointDirectory(JobDir(flags.FLAGS.copy_to))
    old = OldCheckpoints(copies, Retention(last=9), Evaluations(JobDir(flags.FLAGS.copy_to)))
    saver.save(copies, old, draft, writer, lambda: None)
    evaluation = engine.evaluate(restored)
    sys.stdout.write(f"evaluated {restored.name}: loss {evaluation.metrics['loss']:.9f}\n")
    return 0


if __name__ == "__main__":
    entry.run(main, has_lasting_threads=True, rewritten=experiment_flags.take)
