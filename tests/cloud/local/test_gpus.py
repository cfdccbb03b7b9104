"""The local launcher gives each worker GPUs of its own, or leaves all to all."""

import pytest

from cloud.local.command import owned
from cloud.submit import main
from tests.gpu import nvidia_smi
from tfps.cluster.spec import Cluster
from tfps.errors import UserError


def cluster(workers, ps, evaluators=0):
    addresses = iter(f"127.0.0.1:{port}" for port in range(1, 100))

    def some(count):
        return tuple(next(addresses) for _ in range(count))

    return Cluster(some(1), some(workers), some(ps), some(evaluators))


def visible(tasks, each, gpus):
    found = owned(tasks, each, {"CUDA_VISIBLE_DEVICES": gpus})
    return {f"{job}-{index}": one["CUDA_VISIBLE_DEVICES"] for (job, index), one in found.items()}


def test_workers_have_their_own_and_ps_and_chief_none():
    assert visible(cluster(2, 1), 1, "0,1") == {
        **{"worker-0": "0", "worker-1": "1"},
        **{"ps-0": "-1", "chief-0": "-1"},
    }
    assert visible(cluster(2, 1, 1), 2, "4,5,6,7,2") == {
        **{"worker-0": "4,5", "worker-1": "6,7", "evaluator-0": "2"},
        **{"ps-0": "-1", "chief-0": "-1"},
    }
    assert visible(cluster(1, 1, 1), 1, "GPU-8f4a")["evaluator-0"] == "-1"


def test_without_ps_the_chief_trains_too():
    assert visible(cluster(1, 0), 1, "3,5") == {"chief-0": "3", "worker-0": "5"}


def test_left_out_nobody_is_told_anything():
    assert owned(cluster(2, 1), 0, {"CUDA_VISIBLE_DEVICES": "0"}) == {}


@pytest.mark.parametrize(("gpus", "count"), [("0", 1), ("", 0), ("-1", 0), ("0,-1,1", 1)])
def test_too_few_are_refused(gpus, count):
    with pytest.raises(UserError, match=f"2 tasks train, .* 2 GPUs, .* has {count} to give"):
        owned(cluster(2, 1), 1, {"CUDA_VISIBLE_DEVICES": gpus})


def test_those_of_the_machine_are_counted_by_nvidia_smi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", nvidia_smi.install(tmp_path))
    monkeypatch.setenv(nvidia_smi.MARK, "2")
    found = owned(cluster(2, 1), 1, {})
    assert found["worker", 1] == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"which GPUs there are is unknown, nvidia-smi .* fails"):
        owned(cluster(2, 1), 1, {})


def test_a_dry_run_shows_them(capfd, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    argv = ["submit", "--target=local", "--workers=2", "--ps=1", "--gpus_per_worker=1"]
    task = ["--config=configs/smoke.py", "--job_dir=/tmp/none"]
    assert main([*argv, "--dry_run", "--format=json", "--", *task]) == 0
    said = capfd.readouterr().out
    assert said.count('"CUDA_VISIBLE_DEVICES": "-1"') == 2
    assert '"CUDA_VISIBLE_DEVICES": "1"' in said
