"""Makes a dataset of TFRecord files that something else wrote, where they are.

    python -m trainer.index --config=configs/mine.py --data=gs://bucket/records

The files are read once, in parallel: what their records hold is counted, and where they begin is
written beside them with a manifest. The files stay as they are. `--data` is a directory, of which
the files with `.tfrecord` in their names are meant, or all where none is called so, but no hidden
ones; a file or a glob; the files must be in one directory.
GZIP and ZLIB files are recognised by their content.

With `--shuffle=whole --output=DIR` the records are written to another directory, in an order that
is drawn over all of them.
"""

import os

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags, shuffle_flags


def main() -> None:
    from trainer.datasets import indexing  # it loads TensorFlow, which --help needs not

    indexing.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_string("data", None, "Directory, file or glob of TFRecords.", required=True)
    flags.DEFINE_boolean("without_labels", False, "The records have no labels: to be predicted.")
    flags.DEFINE_string("name", "", "Of the dataset; the experiment's name by default.")
    flags.DEFINE_integer(
        "processes", os.cpu_count() or 1, "How many read files at the same time.", lower_bound=1
    )
    flags.DEFINE_boolean("overwrite", False, "Replace index and manifest that are there.")
    shuffle_flags.define()
    flags.DEFINE_string("output", "", "With --shuffle=whole: directory of the dataset.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
