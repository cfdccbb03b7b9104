"""Which GPUs go with which machine types of Vertex AI custom training.

From "Configure compute resources for training" of Vertex AI's documentation, November 2026. When
Google adds a machine type, add a line here.
"""

import re

# Machine types that come with GPUs, and with none other.
BUILT_IN: dict[str, tuple[str, int]] = {
    "a2-highgpu-1g": ("NVIDIA_TESLA_A100", 1),
    "a2-highgpu-2g": ("NVIDIA_TESLA_A100", 2),
    "a2-highgpu-4g": ("NVIDIA_TESLA_A100", 4),
    "a2-highgpu-8g": ("NVIDIA_TESLA_A100", 8),
    "a2-megagpu-16g": ("NVIDIA_TESLA_A100", 16),
    "a2-ultragpu-1g": ("NVIDIA_A100_80GB", 1),
    "a2-ultragpu-2g": ("NVIDIA_A100_80GB", 2),
    "a2-ultragpu-4g": ("NVIDIA_A100_80GB", 4),
    "a2-ultragpu-8g": ("NVIDIA_A100_80GB", 8),
    "a3-highgpu-1g": ("NVIDIA_H100_80GB", 1),
    "a3-highgpu-2g": ("NVIDIA_H100_80GB", 2),
    "a3-highgpu-4g": ("NVIDIA_H100_80GB", 4),
    "a3-highgpu-8g": ("NVIDIA_H100_80GB", 8),
    "a3-megagpu-8g": ("NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": ("NVIDIA_H200_141GB", 8),
    "a4-highgpu-8g": ("NVIDIA_B200", 8),
    "a4x-highgpu-4g": ("NVIDIA_GB200", 4),
    "g2-standard-4": ("NVIDIA_L4", 1),
    "g2-standard-8": ("NVIDIA_L4", 1),
    "g2-standard-12": ("NVIDIA_L4", 1),
    "g2-standard-16": ("NVIDIA_L4", 1),
    "g2-standard-24": ("NVIDIA_L4", 2),
    "g2-standard-32": ("NVIDIA_L4", 1),
    "g2-standard-48": ("NVIDIA_L4", 4),
    "g2-standard-96": ("NVIDIA_L4", 8),
    "g4-standard-48": ("NVIDIA_RTX_PRO_6000", 1),
    "g4-standard-96": ("NVIDIA_RTX_PRO_6000", 2),
    "g4-standard-192": ("NVIDIA_RTX_PRO_6000", 4),
    "g4-standard-384": ("NVIDIA_RTX_PRO_6000", 8),
}
# GPUs that are added to an n1 machine: numbers of them by the least number of its vCPUs.
ADDED: dict[str, dict[int, tuple[int, ...]]] = {
    "NVIDIA_TESLA_P4": {0: (1, 2, 4), 32: (2, 4), 64: (4,)},
    "NVIDIA_TESLA_T4": {0: (1, 2, 4), 32: (2, 4), 64: (4,)},
    "NVIDIA_TESLA_V100": {0: (1, 2, 4, 8), 16: (2, 4, 8), 32: (4, 8), 64: (8,)},
}
# GiB of memory of each vCPU, by family and class.
_GIB_OF_CPU: dict[str, dict[str, float]] = {
    "c2": {"standard": 4},
    "c2d": {"standard": 4, "highmem": 8, "highcpu": 2},
    "c3": {"standard": 4, "highmem": 8, "highcpu": 2},
    "c3d": {"standard": 4, "highmem": 8, "highcpu": 2},
    "e2": {"standard": 4, "highmem": 8, "highcpu": 1},
    "g2": {"standard": 4},
    "g4": {"standard": 3.75},
    "m1": {"ultramem": 24, "megamem": 14.9},
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4, "highmem": 8, "highcpu": 1},
    "n2d": {"standard": 4, "highmem": 8, "highcpu": 1},
    "n4": {"standard": 4, "highmem": 8, "highcpu": 2},
}
# GiB of memory for each GPU of machines that come with them.
_GIB_OF_GPU = {
    "a2-highgpu": 85,
    "a2-megagpu": 85,
    "a2-ultragpu": 170,
    "a3-highgpu": 234,
    "a3-megagpu": 234,
    "a3-ultragpu": 369,
    "a4-highgpu": 496,
    "a4x-highgpu": 221,
}
_GROWING = (
    *("n2-standard-2", "n2-standard-4", "n2-standard-8", "n2-highmem-8", "n2-highmem-16"),
    *("n2-highmem-32", "n2-highmem-64", "n2-highmem-80", "m1-ultramem-40"),
)
_FAMILIES_WITH_GPUS = sorted({name.partition("-")[0] for name in BUILT_IN})
_MACHINE = r"([a-z][a-z0-9]*)-[a-z]+-(\d+)g?"


def mismatch(machine: str, accelerator: str, count: int) -> str:
    """What is wrong with a machine type and its GPUs.

    Args:
        machine: Machine type, such as n2-standard-8.
        accelerator: Vertex AI's name of the GPU, empty for none.

    Returns:
        What is wrong and how to mend it, empty if the two go together.
    """
    parts = re.fullmatch(_MACHINE, machine)
    if not parts:
        return f"{machine} is no machine type; write one such as n2-standard-8"
    if machine in BUILT_IN:
        own = BUILT_IN[machine]
        wrong = "" if own == (accelerator, count) else f"{machine} has {own[0]}:{own[1]}"
        return f"{wrong}, not {_show(accelerator, count)}" if wrong else ""
    if parts[1] in _FAMILIES_WITH_GPUS:
        known = [name for name in BUILT_IN if name.startswith(f"{parts[1]}-")]
        return f"{machine} is not known; machine types of its family are {', '.join(known)}"
    if not accelerator:
        return ""
    if accelerator not in ADDED:
        homes = [name for name, own in BUILT_IN.items() if own[0] == accelerator]
        known = sorted({own[0] for own in BUILT_IN.values()} | set(ADDED))
        mend = f"it comes with {', '.join(homes)}" if homes else f"GPUs are {', '.join(known)}"
        return f"{machine} cannot have a {accelerator}; {mend}"
    if parts[1] != "n1":
        return f"{machine} cannot have a {accelerator}; only n1 machines can"
    by_cpus = ADDED[accelerator]
    counts = by_cpus[max(least for least in by_cpus if least <= int(parts[2]))]
    if count not in counts:
        numbers = " or ".join(map(str, counts))
        return f"{machine} can have {numbers} of {accelerator}, not {count}"
    return ""


def memory_bytes(machine: str) -> int:
    """Memory of a machine type.

    Args:
        machine: Machine type, such as n2-standard-8.

    Returns:
        Bytes; 0 if it is not known.
    """
    kind, _, size = machine.rpartition("-")
    family, _, name = kind.partition("-")
    if kind in _GIB_OF_GPU:
        gib = _GIB_OF_GPU[kind] * float(size.removesuffix("g") or 0)
    else:
        gib = _GIB_OF_CPU.get(family, {}).get(name, 0) * (int(size) if size.isdecimal() else 0)
    return int(gib * (1 << 30))


def smallest(needed: int) -> str:
    """A machine type with so many bytes of memory, no larger than it must be; empty if none has."""
    return next((name for name in _GROWING if memory_bytes(name) >= needed), "")


def _show(accelerator: str, count: int) -> str:
    return f"{accelerator}:{count}" if accelerator else "none"
