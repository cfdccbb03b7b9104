"""Short runs whose storage misbehaves, and power cuts at any moment of one."""

import json
import pathlib
import shutil

import pytest

from tests.faults import power_cut, shim
from tests.faults.exploration import EPOCHS, Exploration, Point, committed
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.evaluation.history import Evaluations
from tfps.job_dir import JobDir, report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shim.COMPILER is None,
        reason="there is no C compiler (cc, gcc or clang) to make the shim with",
    ),
]


@pytest.fixture(name="exploration", scope="module")
def exploration_fixture(tmp_path_factory):
    with Exploration(tmp_path_factory.mktemp("faults")) as exploration:
        yield exploration


# Of each kind one point in ten, by tenths of the run; `make faults` tries every call.
@pytest.mark.parametrize(
    ("kind", "tenths", "is_lasting"),
    [
        ("EIO", 3, False),
        ("EIO", 7, True),
        ("ESTALE", 5, False),
        ("ETIMEDOUT", 6, False),
        ("ENOSPC", 6, True),
        ("EROFS", 4, False),
        ("slow", 5, False),
        ("short", 2, False),
        ("stale", 5, False),
    ],
)
def test_a_run_completes_or_ends_with_a_message_and_loses_nothing(
    exploration, kind, tenths, is_lasting
):
    point = Point(kind, exploration.calls(kind) * tenths // 10, is_lasting)
    assert exploration.try_out(point).wrong == ""


@pytest.mark.timeout(600)
def test_a_power_cut_at_any_moment_loses_no_commit_and_stops_no_start(exploration, tmp_path):
    """Of each moment: nothing that was not synced is there, all of it, and drawn parts of it."""
    job_dir = exploration.counted
    disk = power_cut.Disk(job_dir, exploration.template)
    must_be_there, seen, cuts = max(committed(exploration.template)), set(), 0
    changes = list(power_cut.read_record(exploration.record))
    for number, change in enumerate(changes):
        disk.apply(change)
        if change.what == "S" and (pathlib.Path(change.path) / "commit.json") in [
            pathlib.Path(before.target) for before in changes[:number]
        ]:
            must_be_there = max(must_be_there, pathlib.Path(change.path).name)
        lots = [power_cut.drawn(seed) for seed in (number, -number)]
        for survives in (lambda: False, lambda: True, *lots):
            image = disk.after_cut(survives)
            key = hash((must_be_there, *image.items()))
            if key in seen:
                continue
            seen.add(key)
            cuts += 1
            left = tmp_path / str(cuts)
            left.mkdir()
            power_cut.write(image, left)
            _start(left, must_be_there, f"after {number} changes, {change.what} {change.path}")
            shutil.rmtree(left)
    print(f"{len(changes)} changes, {cuts} different disks after a cut")
    assert cuts > 100
    assert must_be_there == max(committed(job_dir))
    assert json.loads((job_dir / "report.json").read_text())["epochs"] == EPOCHS


def _start(job_dir, must_be_there, when):
    """What a chief reads when it begins."""
    CheckpointDirectory(JobDir(job_dir)).delete_uncommitted()
    report.read(JobDir(job_dir))
    Evaluations(JobDir(job_dir)).all()
    whole = committed(job_dir)
    assert whole, when
    assert max(whole) >= must_be_there, when
    markers = {path.parent.name for path in job_dir.glob("checkpoints/*/commit.json")}
    assert markers == set(whole), f"{when}: a damaged one is committed"
