"""Sums up a table and writes a config: what `trainer.analyze` does."""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import os
import shlex
import sys
from collections.abc import Iterator

from absl import flags

from tfps.data import manifest
from tfps.errors import UserError
from tfps.storage import files, objects
from tfps.storage.objects import Use
from tfps.storage.paths import is_local
from trainer.table.column_summary import sketches
from trainer.table.config_text import config_files
from trainer.table.table_page import page
from trainer.table.table_scan import scan
from trainer.table.table_text import table_lines


def run() -> None:
    values = flags.FLAGS
    if bool(values.label) != bool(values.output):
        raise UserError("--label and --output belong together: what is learnt, and the config")
    if values.output and not (is_local(values.output) and values.output.endswith(".py")):
        raise UserError(f"--output={values.output} must be a local file that ends in .py")
    sketches()
    uses = [Use("--page", values.page, writes=True)] if values.page else []
    objects.check([Use("--input", values.input), *uses])
    if values.page and files.exists(values.page) and not values.overwrite:
        raise UserError(f"--page={values.page} is there already; replace it with --overwrite")
    table = scan(values.input, "--input", values.processes)
    sys.stdout.write("\n".join([*table_lines(table), ""]))
    if values.page:
        files.replace(values.page, page(table), "partial")
        sys.stdout.write(f"\npage: {values.page}\n")
    if not values.output:
        return
    config = config_files(table, values.label, values.output)
    config.write(values.overwrite)
    commands = [shlex.join(["python", "-m", *each]) for each in _commands(values)]
    sys.stdout.write("\n".join(["", f"config: {values.output}", "", *commands, ""]))


def _commands(values: flags.FlagValues) -> Iterator[list[str]]:
    """What to do with the config; records of a dataset are prepared already."""
    config = f"--config={values.output}"
    stem = os.path.basename(values.output).removesuffix(".py")
    data = [f"--data.train={values.input}"]
    if not manifest.is_in(values.input):
        rows = [f"--input={values.input}", f"--output=data/{stem}", "--split=train:0.9,eval:0.1"]
        yield ["trainer.prepare", config, *rows]
        data = [f"--data.train=data/{stem}/train", f"--data.eval=data/{stem}/eval"]
    yield ["trainer.task", "--mode.name=local", config, *data, f"--job_dir=runs/{stem}"]
    model = f"--model=runs/{stem}/export"
    yield ["trainer.predict", config, model, "--data=NEW.csv", "--output=predictions.csv"]
