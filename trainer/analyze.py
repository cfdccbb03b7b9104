"""Shows what a table's columns hold, and writes a config that learns one of them.

    python -m trainer.analyze --input=listings.csv --label=sold --output=mine.py

The table is CSV files with a header, also .gz, Parquet files, or a dataset. It is read once, in
parallel and in bounded memory. Distinct values and the most frequent ones are exact up to 4,096 of
them, estimated beyond (marked `~`); medians are right within 1.3 % of the rows.

With `--label` and `--output` a config of Keras layers is written, and next to it the vocabularies
that these load. It trains at once, and is yours to change.
"""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import os
import sys

from absl import flags

from tfps.errors import UserError
from tfps.storage import objects
from tfps.storage.objects import Use
from tfps.storage.paths import is_local
from trainer import entry
from trainer.table.column_summary import sketches
from trainer.table.config_text import config_files
from trainer.table.table_scan import scan
from trainer.table.table_text import table_lines


def main() -> None:
    values = flags.FLAGS
    if bool(values.label) != bool(values.output):
        raise UserError("--label and --output belong together: what is learnt, and the config")
    if values.output and not (is_local(values.output) and values.output.endswith(".py")):
        raise UserError(f"--output={values.output} must be a local file that ends in .py")
    sketches()
    objects.check([Use("--input", values.input)])
    table = scan(values.input, "--input", values.processes)
    sys.stdout.write("\n".join([*table_lines(table), ""]))
    if not values.output:
        return
    config = config_files(table, values.label, values.output)
    config.write(values.overwrite)
    stem = os.path.basename(values.output).removesuffix(".py")
    sys.stdout.write(
        f"\nconfig: {values.output}\n\n"
        f"python -m trainer.prepare --config={values.output} --input={values.input} "
        f"--output=data/{stem} --split=train:0.9,eval:0.1\n"
        f"python -m trainer.task --mode.name=local --config={values.output} "
        f"--data.train=data/{stem}/train --data.eval=data/{stem}/eval --job_dir=runs/{stem}\n"
        f"python -m trainer.predict --config={values.output} --model=runs/{stem}/export "
        "--data=NEW.csv --output=predictions.csv\n"
    )


def _define_flags() -> None:
    flags.DEFINE_string(
        "input", None, "CSV or Parquet files, or a dataset's directory.", required=True
    )
    flags.DEFINE_string("label", "", "Column that the config learns.")
    flags.DEFINE_string("output", "", "File of the config to write, such as mine.py.")
    flags.DEFINE_boolean("overwrite", False, "Replace a config and its vocabularies.")
    flags.DEFINE_integer(
        "processes", os.cpu_count() or 1, "How many read the table.", lower_bound=1
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main)
