"""A table that no single ps has the memory for is trained by several."""

import pathlib
import re
import time

import psutil
import pytest
from cluster_process import PATIENCE, Program, local_cluster, read_report, trainer_flags

ROWS, DIM = 9_000_000, 16  # 576 MB, 1.7 GB with its two slots of Adam
PS_MEMORY = 1500 << 20
TASK = (f"--task.vocabulary={ROWS}", f"--task.dim={DIM}")
RECORDS = 2000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]


def test_a_table_that_exceeds_one_ps(tmp_path: pathlib.Path) -> None:
    generate = ["--config=configs/smoke.py", f"--output={tmp_path / 'data'}", *TASK]
    with Program(
        *generate, f"--records={RECORDS}", "--shards=2", module="trainer.generate"
    ) as made:
        assert made.finish() == 0, made.text
    flags = trainer_flags(tmp_path / "data", tmp_path / "job", *TASK, f"--ps_memory={PS_MEMORY}B")

    with local_cluster(2, 1, flags) as program:
        assert program.finish() == 2
        [error] = program.errors
    said = re.search(r"each of 1 ps needs up to \S+ \S+, .* too much; (\d+) ps of that", error)
    assert said, error
    ps = int(said[1])

    most: dict[str, int] = {}
    with local_cluster(2, ps, flags, loads=True) as program:
        program.see("serves at")
        servers = {name: x for name, x in program.tasks().items() if name.startswith("ps")}
        deadline = time.monotonic() + 2 * PATIENCE
        while time.monotonic() < deadline and not (tmp_path / "job" / "export" / "1").exists():
            for name, server in servers.items():
                most[name] = max(most.get(name, 0), _resident(server))
            time.sleep(0.1)
        assert program.finish() == 0, program.text
    print(f"bytes resident at most, of {PS_MEMORY:,}: {most}")
    assert len(most) == ps > 1
    assert max(most.values()) <= PS_MEMORY
    assert read_report(tmp_path / "job")["examples"]["skipped"] == 0


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
