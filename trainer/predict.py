"""Predicts with an exported model and writes a CSV or a Parquet file.

    python -m trainer.predict --model=JOB_DIR/export --data=adult.test --output=FILE.csv \
        --config=configs/census.py

`--data` is a dataset's directory, a TFRecord file or a glob of them (gzip when they end in `.gz`),
a text file, a Parquet file or a directory of those. With `--config` rows are read as the task says,
the labels' columns optional; without, the header or the columns' names are those of the features
(`NAME`, or `NAME_0`, `NAME_1`, … for a vector; in a Parquet file `NAME` may hold lists); the values
of a feature that varies in length stand in one cell, divided by `|`, or in a list.

The output has a row per record in order: what `--keep` names, the label when it is known, the
prediction. In a CSV file, under a header, a vector is `prediction_0,prediction_1,…`; in a Parquet
file, whose name ends in `.parquet`, a list. Several labels or predictions have their names behind:
`label_NAME`, `prediction_NAME`.
"""

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags

_FORMATS = ("auto", "dataset", "tfrecord", "csv", "parquet")


def main() -> None:
    from trainer.datasets import prediction  # it loads TensorFlow, which --help needs not

    prediction.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.DEFINE_string("model", None, "Export directory of a trained job.", required=True)
    flags.DEFINE_string(
        "data", None, "Dataset directory, TFRecords, text or Parquet files.", required=True
    )
    flags.DEFINE_string(
        "output", None, "File to write: Parquet if it ends in .parquet, else CSV.", required=True
    )
    flags.DEFINE_list(
        "keep", [], "Columns of rows, or features of records, to copy beside the predictions."
    )
    flags.DEFINE_enum("format", "auto", _FORMATS, "What --data is; auto tells by name and content.")
    flags.DEFINE_integer("batch_size", 4096, "Records per call of the model.", lower_bound=1)
    flags.DEFINE_integer("max_bad_rows", 0, "Bad rows that may be left out.", lower_bound=0)
    flags.DEFINE_boolean("overwrite", False, "Replace the output file.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
