"""Shows what a table's columns hold, and writes a config that learns one of them.

    python -m trainer.analyze --input=listings.csv --label=sold --output=mine.py

The table is CSV files with a header, also .gz, Parquet files, or a dataset. It is read once, in
parallel and in bounded memory. Distinct values and the most frequent ones are exact up to 4,096 of
them, estimated beyond (marked `~`); medians are right within 1.3 % of the rows. `--page=FILE.html`
draws each column's values.

With `--label` and `--output` a config of Keras layers is written, and next to it the vocabularies
that these load. It trains at once, and is yours to change.
"""

import os

from absl import flags

from trainer import entry


def main() -> None:
    from trainer.table import analysis  # it loads TensorFlow, which --help needs not

    analysis.run()


def _define_flags() -> None:
    flags.DEFINE_string(
        "input", None, "CSV or Parquet files, or a dataset's directory.", required=True
    )
    flags.DEFINE_string("label", "", "Column that the config learns.")
    flags.DEFINE_string("output", "", "File of the config to write, such as mine.py.")
    flags.DEFINE_string("page", "", "File of HTML to write, which shows each column's values.")
    flags.DEFINE_boolean("overwrite", False, "Replace a config, its vocabularies and a page.")
    flags.DEFINE_integer(
        "processes", os.cpu_count() or 1, "How many read the table.", lower_bound=1
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main)
