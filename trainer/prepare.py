"""Turns rows of CSV, TSV or Parquet files into TFRecord shards with a manifest.

    python -m trainer.prepare --config=configs/census.py --input=adult.data --output=DIR --shards=8

Rows are dealt to the shards in turn, so shards hold equally many records, but for one. More shards
than rows leaves some of them empty. Blocks of rows are read by several processes; the shards do not
depend on their number. Parquet files are recognised by their content; their columns, and those of a
text file whose first line names them, are used by the names that the task's `rows()` gives, in
whatever order they stand. In other text files they stand in the order of `rows()`.

`--shuffle=whole` writes the records in an order that is drawn over all of them.
"""

import os

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags, shuffle_flags


def main() -> None:
    from trainer.datasets import preparation  # it loads TensorFlow, which --help needs not

    preparation.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_list(
        "input",
        None,
        "Files of rows: CSV or TSV, also .gz, or Parquet; globs, or directories of them.",
        required=True,
    )
    flags.DEFINE_string("output", None, "Directory of the dataset.", required=True)
    flags.DEFINE_integer("shards", 8, "Number of shards of a dataset.", lower_bound=1)
    flags.DEFINE_string(
        "split",
        "",
        "Divides the rows by chance into a dataset per part, in a subdirectory of --output, such "
        "as train:0.9,eval:0.1.",
    )
    flags.DEFINE_list("keep", [], "Other columns that the records hold too, as text.")
    flags.DEFINE_integer("max_bad_rows", 0, "Bad rows that may be left out.", lower_bound=0)
    flags.DEFINE_string("name", "", "Prefix of the shards; the experiment's name by default.")
    flags.DEFINE_boolean("overwrite", False, "Replace a dataset in the output directory.")
    flags.DEFINE_boolean("without_labels", False, "The rows have no labels: to be predicted.")
    shuffle_flags.define()
    flags.DEFINE_integer(
        "processes", os.cpu_count() or 1, "How many turn rows into records.", lower_bound=1
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
