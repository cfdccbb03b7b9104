"""`--dry_run`: the plan as it is printed, and the processes that print it."""

import dataclasses
import os
import re

import pytest

from configs.smoke import get_config
from tests.loaded import client
from tests.training_fixtures import dataset, inputs_of
from tfps import byte_size
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.planner.memory import PROCESS_BYTES, WORKING_BYTES, Placement
from trainer.chief import preflight

THREE_PS = Cluster(("h:1",), ("h:2", "h:3"), ("h:4", "h:5", "h:6"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=100, shards=2).directory


def run(*argv, environ=None):
    return client.run(*argv, environ={**os.environ, **(environ or {})})


def flags(data, job_dir, *more):
    return ["--config=configs/smoke.py", f"--data.train={data}", f"--job_dir={job_dir}", *more]


@pytest.mark.slow
def test_a_chiefs_machine_has_room_for_the_worker_beside_it(data, tmp_path):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment, data=dataclasses.replace(experiment.data, train=data)
    )
    told = []
    for cluster in (THREE_PS, dataclasses.replace(THREE_PS, chief_works=True)):
        inputs = inputs_of(experiment, tmp_path, cluster)
        [line] = [line for line in preflight.dry_run_lines(inputs) if line.startswith("chief: ")]
        told.append(line)
    assert re.fullmatch(r"chief: needs about \S+ \S+", told[0])
    match = re.fullmatch(
        r"chief: needs about (.+) beside its worker's batches, (.+) of it for worker 1", told[1]
    )
    alone = byte_size.parse(told[0].removeprefix("chief: needs about ").replace(" ", ""), "")
    whole, worker = (byte_size.parse(text.replace(" ", ""), "") for text in match.groups())
    assert whole == pytest.approx(alone + worker, rel=0.01)


def test_the_plan_is_a_table_with_every_share(data, tmp_path):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment, data=dataclasses.replace(experiment.data, train=data)
    )
    inputs = inputs_of(experiment, tmp_path, THREE_PS)
    text = preflight.dry_run_lines(inputs)
    assert text[0] == "smoke on 3 ps"
    placement = Placement.of(inputs.plan.layout, 2)
    header = text.index("")
    table = [line.split() for line in text[header + 2 : text.index("", header + 1)]]
    assert [(line[:2], line[2]) for line in table] == [
        (["ps", str(share.ps)], share.name) for share in placement.shares
    ]
    assert [line[-1] for line in table if line[2] == "tables_dim4"] == ["33.3%", "33.3%", "33.4%"]
    assert len({len(line) for line in text[header + 1 : text.index("", header + 1)]}) == 1
    # The table, Adam's slots; the reserves are said where the process's own memory is.
    assert any(line.startswith("ps 2") and line.endswith(" GiB") for line in text)
    assert PROCESS_BYTES + WORKING_BYTES == 1 << 30
    assert "ps 0 keeps the progress of leases, ps 1 counts staleness" in text
    assert re.match(
        r"graph: about [\d.,]+ [KM]iB, sent to every task \([\d.]+ MiB in all\); ", text[-2]
    )
    wire = text[-1]
    assert wire.startswith("wire: ")
    assert "bytes per example in float32 at batch size 32" in wire


def test_the_plan_says_what_the_job_dir_keeps_and_what_is_free(data, tmp_path):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment, data=dataclasses.replace(experiment.data, train=data)
    )
    inputs = inputs_of(experiment, tmp_path, THREE_PS)
    [line] = [line for line in preflight.dry_run_lines(inputs) if line.startswith("disk: ")]
    size = byte_size.show(Placement.of(inputs.plan.layout, 1).all_bytes)
    assert line.startswith(f"disk: {tmp_path} keeps up to 4 checkpoints of {size} and 3 exports of")
    assert re.search(r" in all; its disk has \S+ \S+ left$", line)
    in_bucket = dataclasses.replace(inputs.settings, job_dir=JobDir("gs://bucket/job"))
    [line] = preflight.disk_lines(inputs._replace(settings=in_bucket))
    assert line.endswith(" in all; in a bucket")


def test_the_plan_of_replicas_has_no_wire(data, tmp_path):
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment, data=dataclasses.replace(experiment.data, train=data)
    )
    replicas = Cluster(("h:1",), ("h:2",))
    text = preflight.dry_run_lines(inputs_of(experiment, tmp_path, replicas))
    assert text[0] == "smoke in each of 2 replicas, as on one ps"
    assert not any(line.startswith("wire:") for line in text)


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        ("train", {"pipeline_depth": 1}, "train.pipeline_depth=1: training without ps"),
        ("train", {"wire_dtype": "bfloat16"}, "knows only float32; leave it out"),
        ("data", {"max_bad_records": 3}, "data.max_bad_records=3: training without ps"),
    ],
)
def test_what_needs_ps_is_refused_without(tmp_path, part, settings, message):
    experiment = get_config()
    changed = dataclasses.replace(getattr(experiment, part), **settings)
    experiment = dataclasses.replace(experiment, **{part: changed})
    with pytest.raises(UserError, match=message):
        inputs_of(experiment, tmp_path, Cluster(("h:1",), ("h:2",)))


@pytest.mark.slow
def test_the_launcher_prints_the_chief_s_plan_and_starts_nothing(data, tmp_path):
    argv = ["cloud.local", "--workers=2", "--ps=3", "--dry_run", "--"]
    done = run(*argv, *flags(data, tmp_path / "job", "--ps_memory=2GiB"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("smoke on 3 ps\n")
    assert "[launcher]" not in done.stdout
    assert not (tmp_path / "job" / "logs").exists()


def test_what_does_not_fit_ends_with_one_message(data, tmp_path):
    config = '{"cluster": {"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3"]}, %s}'
    environ = {"TF_CONFIG": config % '"task": {"type": "worker", "index": 0}'}
    more = ("--dry_run", "--ps_memory=1.03GiB", "--task.dim=4096")
    done = run("trainer.task", *flags(data, tmp_path / "job", *more), environ=environ)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: --ps_memory=1.03 GiB: each of 1 ps needs up to ")
    assert line.endswith(" ps of that memory would do")
