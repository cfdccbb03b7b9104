"""A job that follows clicks whose reasons drift: how good its model is, and its versions.

    python -m benchmarks.online --output=runs/online

A dataset appears every few seconds. Afterwards two tables: what the model predicted of records
before it learnt them, compared with the same updates in order and with the truth; and what each
version that was exported meanwhile predicts of the clicks after it, at once and at the end.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
from absl import app, flags
from sklearn.metrics import roc_auc_score

import tfps
from benchmarks import drift
from tfps.export.loaded_model import ExportedModel
from tfps.job_dir import JobDir
from tfps.monitoring import recorder
from tfps.monitoring.events import Sampled

_FLAGS = flags.FLAGS
flags.DEFINE_string("output", "runs/online", "Directory of stream and job; its content goes.")
flags.DEFINE_integer("datasets", 40, "How many appear.", lower_bound=2)
flags.DEFINE_integer("records", 20_000, "Of each dataset.", lower_bound=1000)
flags.DEFINE_float("seconds", 2.0, "Between two datasets.", lower_bound=0.0)
flags.DEFINE_float("export_seconds", 20.0, "Between two exports.", lower_bound=0.0)
flags.DEFINE_list("cluster", ["--workers=2", "--ps=1"], "Arguments of cloud.local.")


def _write(stream: pathlib.Path) -> None:
    for number in range(_FLAGS.datasets):
        began = time.monotonic()
        columns, _ = drift.clicks(number, _FLAGS.records)
        clicked = columns.pop("clicked")
        tfps.write_dataset(
            str(stream / f"{number:06}"),
            columns,
            clicked,
            features=drift.FEATURES,
            label=drift.LABEL,
            shards=2,
        )
        time.sleep(max(0.0, began + _FLAGS.seconds - time.monotonic()))


def _judged(job_dir: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """Of each sample: the datasets, the AUC of what was predicted, the others' of the same."""
    others, in_order = [], drift.InOrder()
    for number in range(_FLAGS.datasets):
        columns, truth = drift.clicks(number, _FLAGS.records)
        predicted = in_order.learn(columns)
        others.append([roc_auc_score(columns["clicked"], each) for each in (predicted, truth)])
    before = 0
    for event in recorder.read(JobDir(job_dir)):
        if isinstance(event, Sampled) and "auc" in event.judged:
            first, last = before // _FLAGS.records, (event.examples - 1) // _FLAGS.records
            before, auc = event.examples, event.judged["auc"]
            sequential, best = np.mean(others[first : last + 1], axis=0)
            compared = (f"{auc:.4f}", f"{auc - sequential:+.4f}", f"{auc - best:+.4f}")
            yield f"{first}-{last}", *compared


def _versions(job_dir: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """Of each version: the datasets that it has learnt, and its AUC of later ones."""
    paths = sorted((job_dir / "export").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in paths:
        found = re.search(r'"checkpoint": "\d+-(\d+)-\d+"', (path / "schema.json").read_text())
        assert found, path
        if (learnt := int(found[1])) == _FLAGS.datasets:
            return  # no clicks came after it
        model = ExportedModel.load(str(path))
        row = [path.name, str(learnt)]
        for number in (learnt, _FLAGS.datasets - 1):
            columns, truth = drift.clicks(number, _FLAGS.records)
            clicked = columns.pop("clicked")
            [predicted] = model.predict(columns).values()
            auc, best = (roc_auc_score(clicked, each) for each in (predicted.ravel(), truth))
            row += [f"{auc:.4f}", f"{auc - best:+.4f}"]
        yield tuple(row)


def _print(*rows: tuple[str, ...]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{line}\n")
    sys.stdout.write("\n")


def main(_: list[str]) -> None:
    output = pathlib.Path(_FLAGS.output)
    shutil.rmtree(output, ignore_errors=True)
    stream, job_dir = output / "stream", output / "job"
    stream.mkdir(parents=True)
    threading.Thread(target=_write, args=[stream], daemon=True).start()
    subprocess.run(
        [
            *(sys.executable, "-m", "cloud.local", *_FLAGS.cluster, "--"),
            *("--config=benchmarks/drift.py", f"--job_dir={job_dir}"),
            *(f"--data.train={stream}", "--data.follow_seconds=30"),
            *("--train.checkpoint_seconds=10", f"--train.export_seconds={_FLAGS.export_seconds}"),
            "--train.keep_exports=1000",
        ],
        check=True,
    )
    titles = ("datasets", "AUC before learning", "off one in order", "off the truth")
    _print(titles, *_judged(job_dir))
    _print(
        ("version", "datasets", "AUC of the next", "off the truth", "of the last", "off the truth"),
        *_versions(job_dir),
    )


if __name__ == "__main__":
    app.run(main)
