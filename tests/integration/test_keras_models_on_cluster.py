"""Models that others publish the kind of, on 2 workers and 2 ps, beside Keras's `fit`."""

import pathlib

import keras
import pytest
from cluster_process import local_cluster, read_report

import tfps
from tests.keras_models.case import Case
from tests.keras_models.cases import ALL
from tests.keras_models.config import CASE, IS_THERE
from tests.keras_models.kept import CLUSTER, keep
from tests.keras_models.test_keras_models import drawn, fitted, for_keras

IN_SLOW = (  # one of each kind
    *("wide_and_deep", "sasrec", "bidirectional_lstm", "temporal_cnn", "small_resnet"),
    *("mixture_of_experts", "awkward_names"),
)


def loss_on_cluster(case: Case, directory: pathlib.Path, **environ: str) -> float:
    """The loss that 2 workers and 2 ps end at."""
    features, labels = drawn(case)
    data, job = directory / "data", directory / "job"
    label = case.label if isinstance(case.label, tuple) else (case.label,)
    tfps.write_dataset(str(data), features, labels, features=case.features, label=label, shards=4)
    flags = ["--config=tests/keras_models/config.py", f"--data.train={data}", f"--data.eval={data}"]
    environ = {CASE: case.name, **environ}
    with local_cluster(2, 2, [*flags, f"--job_dir={job}"], environ=environ) as program:
        assert program.finish() == 0, program.text
    return float(read_report(job)["metrics"]["loss"])


def losses_of_fit(case: Case) -> tuple[float, float]:
    """Those that Keras begins with and ends at."""
    keras.utils.set_random_seed(0)
    model = case.build()
    return fitted(case, model, *for_keras(case, model, *drawn(case)))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=pytest.mark.slow if case.name in IN_SLOW else pytest.mark.models,
        )
        for case in ALL
    ],
)
def test_a_cluster_ends_where_fit_ends(case: Case, tmp_path: pathlib.Path) -> None:
    ours = loss_on_cluster(case, tmp_path)
    before, theirs = losses_of_fit(case)
    keep(case, CLUSTER, {"before": before, "keras": theirs, "tfps": ours})
    assert theirs < before
    assert ours - theirs <= case.on_cluster * (before - theirs), (before, theirs, ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide_and_deep", "string_lookup_mlp", "normalized_mlp"])
def test_a_model_that_is_there_is_trained_by_a_cluster(name: str, tmp_path: pathlib.Path) -> None:
    """Its variables are lost when the process that made it becomes a chief."""
    [case] = (each for each in ALL if each.name == name)
    ours = loss_on_cluster(case, tmp_path, **{IS_THERE: "1"})
    before, theirs = losses_of_fit(case)
    assert ours - theirs <= case.on_cluster * (before - theirs), (before, theirs, ours)
