"""Serves an exported model over HTTP, to be tried out: a form, and TensorFlow Serving's REST API.

    python -m trainer.serve --model=JOB_DIR

`--model` is a job's directory, its `export`, or a version's. The newest version is served, and the
next one in its place once it is whole and answers its warm-up requests. With `--config`, of a model
whose config has `rows()`, requests and the form have raw rows, as `trainer.predict` reads them.
There is no authentication and no encryption: it listens on this machine alone unless `--address`
says otherwise.
"""

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags


def main() -> int:
    from trainer.serving import server  # it loads TensorFlow, which --help needs not

    return server.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.DEFINE_string(
        "model", None, "Directory of a job, its export, or one version of it.", required=True
    )
    flags.DEFINE_string("model_name", "default", "The model's name in /v1/models/NAME.")
    flags.DEFINE_string("address", "127.0.0.1", "To listen at; 0.0.0.0 for other machines.")
    flags.DEFINE_integer("port", 8501, "To listen at; 0 for any that is free.", 0, 65535)
    flags.DEFINE_float("poll_seconds", 5.0, "Between looks for another version.", 0.1)
    flags.DEFINE_integer("max_batch", 1024, "Records that a request may have.", 1)
    flags.DEFINE_string("max_body", "16MiB", "Bytes that a request may have.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main, has_lasting_threads=True, rewritten=experiment_flags.take)
