"""Seals numbered datasets of rows that keep coming, for a job that follows them.

    python -m trainer.collect --config=mine.py --input=kafka://HOST:9092/TOPIC --output=stream

A job takes them with `--data.train='stream/{epoch:06}' --data.follow_seconds=3600`.

Rows are messages of a Kafka topic, each a JSON object, or files that appear in a directory, as
`trainer.prepare` reads them. They become the datasets 000001, 000002 and so on in `--output`. Every
row gets into one of them, once, also if this program is killed: where it goes on is in the manifest
of the newest dataset, which you must not delete. It ends at SIGINT or SIGTERM, and then seals what
it has.
"""

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags


def main() -> None:
    from trainer.datasets import collection  # it loads TensorFlow, which --help needs not

    collection.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_string(
        "input",
        None,
        "kafka://HOST:PORT[,HOST:PORT]/TOPIC, with --join /TOPIC,LABELS, or the directory in which "
        "files appear. Write them "
        "elsewhere, or under a name that begins with . or _, and rename them when they are whole. "
        "They are taken by name, in ascending order.",
        required=True,
    )
    flags.DEFINE_string("output", None, "Directory of the datasets.", required=True)
    flags.DEFINE_float(
        "seconds",
        60.0,
        "From a dataset's first row until it is sealed; also between looks for files.",
        lower_bound=0.1,
    )
    flags.DEFINE_integer("records", 100_000, "That seal a dataset sooner.", lower_bound=1)
    flags.DEFINE_integer("shards", 4, "Number of shards of a dataset.", lower_bound=1)
    flags.DEFINE_list("keep", [], "Other columns that the records hold too, as text.")
    flags.DEFINE_integer(
        "max_bad_rows", 0, "Bad rows that may be left out of each dataset.", lower_bound=0
    )
    flags.DEFINE_string(
        "join",
        "",
        "Column by which messages of a second topic, with labels, belong to rows of the first.",
    )
    flags.DEFINE_float(
        "window_seconds",
        600.0,
        "That a row waits for its label, by the time of messages; then its labels are 0.",
        lower_bound=0.001,
    )
    flags.DEFINE_string(
        "kafka_config",
        "",
        "File of settings of librdkafka's, NAME=VALUE a line, such as security.protocol=SASL_SSL.",
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
