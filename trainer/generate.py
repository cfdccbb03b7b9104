"""Writes records with a planted signal, for any config whose labels are binary.

    python -m trainer.generate --config=configs/criteo.py --records=500000 --shards=8 --output=DIR

It prints the AUC of the true log-odds on the labels that were written, the best a model can reach;
the manifest holds it too. Several labels have a signal each. Training and evaluation data come from
two runs with another `--seed` and the same `--signal_seed`.
"""

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags


def main() -> None:
    from trainer.datasets import generation  # it loads TensorFlow, which --help needs not

    generation.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_string("output", None, "Directory of the dataset.", required=True)
    flags.DEFINE_integer("records", None, "Number of records.", lower_bound=1, required=True)
    flags.DEFINE_integer("shards", None, "Number of shards.", lower_bound=1, required=True)
    flags.DEFINE_integer("seed", 0, "Seed of the records and labels.", lower_bound=0)
    flags.DEFINE_integer("signal_seed", 0, "Seed of the planted signal.", lower_bound=0)
    flags.DEFINE_string("name", "", "Prefix of the shards; the experiment's name by default.")
    flags.DEFINE_boolean("overwrite", False, "Replace a dataset in the output directory.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
