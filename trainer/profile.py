"""Looks what the tasks of a running job do: `python -m trainer.profile --job_dir=… --seconds=2`.

Each task writes a trace below JOB_DIR/tensorboard/plugins/profile, where TensorBoard's profiler
plugin finds it. What they have in common is told in the terminal.
"""

from absl import flags

from trainer import entry


def main() -> None:
    from trainer.console import job_traces  # it loads TensorFlow, which --help needs not

    job_traces.run()


if __name__ == "__main__":
    flags.DEFINE_string("job_dir", None, "The job's directory, local or gs://.")
    flags.DEFINE_float("seconds", 2.0, "How long to trace.")
    entry.run(main, has_lasting_threads=True, operand="job_dir")
