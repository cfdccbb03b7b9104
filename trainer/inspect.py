"""Shows what a dataset or TFRecord files hold, and checks every record; or a checkpoint's tables.

    python -m trainer.inspect gs://bucket/criteo/train
    python -m trainer.inspect gs://bucket/job

DATA is a dataset's directory, a directory of TFRecord files, a file or a glob. All files are read
whole, in parallel. Exit code 2 when something is damaged, with shard, record and byte of each
damage, or a feature is in no record. A warning tells of records that are sorted.

Of a job's directory the newest checkpoint is shown, or that one whose directory is named: rows of
each table, their norms, and of tables without a vocabulary the keys that are used most. All rows
are read, a chunk after the other. Exit code 2 when the checkpoint is damaged.
"""

import os

from absl import flags

from trainer import entry


def main() -> int:
    from trainer.datasets import inspection  # it loads TensorFlow, which --help needs not

    return inspection.run()


def _define_flags() -> None:
    flags.DEFINE_string(
        "data",
        None,
        "Dataset, directory, file or glob, or a job's or a checkpoint's directory; also without "
        "--data=.",
    )
    flags.DEFINE_integer("records", 2, "How many records to show.", lower_bound=0)
    flags.DEFINE_integer(
        "keys",
        5,
        "Of a checkpoint's tables without a vocabulary, how many of the keys to show that are used "
        "most.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "processes", os.cpu_count() or 1, "How many read files at the same time.", lower_bound=1
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main, operand="data")
