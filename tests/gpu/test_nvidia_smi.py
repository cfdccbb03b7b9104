"""nvidia-smi's answers are read strictly, and looked at again and again while something trains."""

import pytest

from benchmarks.failure import Failed
from benchmarks.gpu import nvidia_smi, sampler
from benchmarks.gpu.nvidia_smi import Gpu, GpuProcess
from benchmarks.gpu.sampler import Sample, Sampler, summary
from tests.gpu import nvidia_smi as stand_in

H100 = (
    "0, GPU-5d1f0f0e-9a3b-2f0c-8f57-0c1d3f7b2a11, NVIDIA H100 80GB HBM3, 550.90.07, 81559, 1034, 37"
)
MIG = "0, GPU-5d1f0f0e, NVIDIA A100-SXM4-40GB, 535.161.08, 40960, 0, [N/A]"


def gpu(index, used, busy, total=1000):
    return Gpu(index, stand_in.uuid(index), "NVIDIA L4", "550", total, used, busy)


def test_a_gpu_is_what_nvidia_smi_says():
    (found,) = nvidia_smi.parse_gpus(f"{H100}\n")
    assert (found.index, found.name) == (0, "NVIDIA H100 80GB HBM3")
    assert (found.memory_total, found.memory_used, found.utilization) == (81559, 1034, 37)
    assert nvidia_smi.parse_gpus(MIG)[0].utilization is None


def test_processes_are_what_nvidia_smi_says():
    assert nvidia_smi.parse_processes("GPU-5d1f, 4711, 312\nGPU-5d1f, 4712, [N/A]\n") == [
        GpuProcess("GPU-5d1f", 4711, 312),
        GpuProcess("GPU-5d1f", 4712, None),
    ]
    assert nvidia_smi.parse_processes("") == []
    assert nvidia_smi.parse_processes("No running processes found\n") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (H100.rpartition(",")[0], "6 values instead of 7"),
        (H100.replace("1034", "1034 MiB"), "invalid literal"),
        (H100.replace(" 37", " 137"), "137 is no percentage"),
        ("Field utilization.gpu is not a valid field to query.", "1 values instead of 7"),
    ],
)
def test_anything_else_is_refused(text, why):
    with pytest.raises(Failed, match=f"which is not understood: .*{why}"):
        nvidia_smi.parse_gpus(text)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "ends with 18: Failed to initialize NVML",
        ),
        ("exit 9", "ends with 9: it says nothing"),
    ],
)
def test_what_nvidia_smi_fails_with_is_told(tmp_path, monkeypatch, script, said):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Failed, match=said):
        nvidia_smi.read_gpus()


def test_a_machine_without_it_has_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match="this machine has no nvidia-smi"):
        nvidia_smi.read_gpus()


def test_samples_are_taken_until_the_block_is_left(tmp_path, monkeypatch):
    """The stand-in says another thing each time that it is asked."""
    (tmp_path / "nvidia-smi").write_text(
        f"""#!/bin/sh
case $1 in *compute-apps*) exit;; esac
echo x >> {tmp_path}/asked
echo "0, GPU-1, NVIDIA L4, 550, 23034, $(wc -l < {tmp_path}/asked), 5"
[ $(wc -l < {tmp_path}/asked) -lt 4 ] || touch {tmp_path}/enough
"""
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with Sampler(0.01) as taking:
        for _ in range(3000):
            if (tmp_path / "enough").exists():
                break
            taking._is_over.wait(0.01)
    used = [sample.gpus[0].memory_used for sample in taking.end()]
    assert used == list(range(1, len(used) + 1))
    assert len(used) >= 3


def test_what_ends_the_samples_is_raised(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with Sampler(0.01) as taking:
        taking._thread.join()
    with pytest.raises(Failed, match="no nvidia-smi"):
        taking.end()


def test_utilisation_is_of_the_window_and_memory_of_all_samples():
    def process(index, pid, memory):
        return GpuProcess(stand_in.uuid(index), pid, memory)

    samples = [
        Sample(1.0, [gpu(0, 900, 99), gpu(1, 5, 0)], [process(0, 11, 50), process(0, 99, 7)]),
        Sample(2.0, [gpu(0, 300, 40), gpu(1, 80, 10)], [process(0, 11, 200), process(1, 12, None)]),
        Sample(3.0, [gpu(0, 310, 60), gpu(1, 90, None)], [process(0, 11, 190)]),
    ]
    found = summary(samples, 1.5, {"worker-0": 11, "worker-1": 12, "ps-0": 13})
    assert found == {
        "samples": 2,
        "utilization": {"0": 50, "1": 10},
        "memory_peak": {"0": 900, "1": 90},
        "memory_total": {"0": 1000, "1": 1000},
        "listed": {"worker-0": {"0": 200}, "worker-1": {"1": None}},
        "others": 1,
    }
    with pytest.raises(Failed, match="not answered once"):
        summary(samples, 9.0, {})


def test_an_unknown_number_is_less_than_any():
    assert [sampler.most(None, 3), sampler.most(2, None), sampler.most(None, None)] == [3, 2, None]
