"""A recommender that learns from positives alone, by negatives that are sampled for it."""

import pathlib

import numpy as np
import pytest

from tests.integration.cluster_process import Program, local_cluster, read_report
from tests.integration.neumf import ITEMS, USERS, NeuMF
from tfps.data.array_dataset import write_dataset

pytestmark = pytest.mark.slow
LIKED, CANDIDATES = 20, 40  # items of a user; items beside the one that is held out
IN_ROUNDS = ("sync", "allreduce")  # of which several workers' batches are a step
CHANCE = 5 / (1 + CANDIDATES)  # of HR@5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Each user likes the items nearest to a taste; one is held out, to be told from others."""
    generator = np.random.default_rng(0)
    taste, style = (generator.standard_normal((count, 4)) for count in (USERS, ITEMS))
    by_liking = np.argsort(1.5 * taste @ style.T + generator.gumbel(size=(USERS, ITEMS)))[:, ::-1]
    liked = generator.permuted(by_liking[:, :LIKED], axis=1)
    others = generator.permuted(by_liking[:, LIKED:], axis=1)[:, :CANDIDATES]
    candidates = np.concatenate([liked[:, :1], others], axis=1)
    directory = tmp_path_factory.mktemp("likes")
    for name, items, positives in (("train", liked[:, 1:], LIKED), ("eval", candidates, 1)):
        users = np.repeat(np.arange(USERS), items.shape[1])
        labels = np.tile(np.arange(items.shape[1]) < positives, USERS)
        write_dataset(
            str(directory / name),
            {"user": users, "item": items.reshape(-1)},
            {"liked": labels},
            features=NeuMF().features(),
            label=NeuMF().label(),
            shards=4,
        )
    return directory


@pytest.mark.parametrize(
    ("mode", "by"),
    [
        ("local", "uniform"),
        ("local", "popularity"),
        ("async", "uniform"),
        ("async", "popularity"),
        ("sync", "popularity"),
        ("bounded", "uniform"),
        ("local_sgd", "popularity"),
        ("allreduce", "popularity"),
    ],
)
def test_a_recommender_ranks_what_was_held_out_far_above_chance(
    data: pathlib.Path, job_dir: pathlib.Path, mode: str, by: str
) -> None:
    flags = [
        "--config=tests/integration/neumf.py",
        f"--data.train={data / 'train'}",
        f"--data.eval={data / 'eval'}",
        f"--job_dir={job_dir}",
        f"--data.negatives_by={by}",
        f"--mode.name={mode}",
    ]
    tasks = (1, 0) if mode == "allreduce" else (2, 1)
    with Program(*flags) if mode == "local" else local_cluster(*tasks, flags) as program:
        assert program.finish() == 0, program.text
    report, records = read_report(job_dir), USERS * (LIKED - 1)
    assert (report["mode"], report["negatives"]) == (mode, 4)
    assert report["examples"]["per_epoch"] == records
    assert (report["examples"]["trained"], report["examples"]["skipped"]) == (8 * records, 0)
    if mode not in IN_ROUNDS:
        assert report["steps"] == 8 * 4 * -(-records // 4 // 64)
    assert report["metrics"]["hr5"] > 3 * CHANCE
    assert report["metrics"]["gauc"] > 0.75
