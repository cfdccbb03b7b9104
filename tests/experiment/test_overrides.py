import dataclasses
import itertools
from typing import Any

import keras
import pytest

from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.experiment.experiment import Experiment
from tfps.experiment.mode import MODES, AllReduce, Bounded, Mode, Sync
from tfps.experiment.task import Task


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    name: str = "a"


@dataclasses.dataclass(frozen=True)
class Everything(Task):
    count: int = 1
    rate: float = 0.1
    deep: bool = False
    units: tuple[int, ...] = (8,)
    limit: int | None = None
    hook: Any = None
    inner: Inner = dataclasses.field(default_factory=Inner)

    def features(self) -> tuple[Feature, ...]:
        return (Feature("x", "float32"),)

    def label(self) -> Feature:
        return Feature("y", "float32")

    def build_model(self) -> keras.Model:
        return keras.Sequential([keras.layers.Dense(1)])

    def loss(self) -> keras.losses.Loss:
        return keras.losses.MeanSquaredError()

    def optimizer(self) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(self.rate)


EXPERIMENT = Experiment("all", Everything())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count=1024", 1024),
        ("count=1_000", 1000),
        ("count=64.0", 64),
        ("rate=3", 3.0),
        ("rate=1e-3", 0.001),
        ("deep=true", True),
        ("deep=False", False),
        ("units=64,32", (64, 32)),
        ("units=64", (64,)),
        ("units=(64, 32,)", (64, 32)),
        ("units=", ()),
        ("limit=5", 5),
        ("limit=none", None),
    ],
)
def test_values_have_the_type_of_their_field(text: str, value: Any) -> None:
    changed = overrides.apply(EXPERIMENT, [f"task.{text}"])
    found = getattr(changed.task, text.partition("=")[0])
    assert found == value
    assert type(found) is type(value)


def test_every_part_of_an_experiment_can_be_set() -> None:
    changed = overrides.apply(
        EXPERIMENT,
        [
            "train.batch_size=64",
            "train.batch_size=128",
            "data.train=gs://bucket/a=b",
            "task.inner.rate=2",
            "task.inner.name=x",
            "name=other",
        ],
    )
    assert changed.train.batch_size == 128
    assert changed.data.train == "gs://bucket/a=b"
    assert changed.task.inner == Inner(2.0, "x")
    assert changed.name == "other"
    assert Everything() == EXPERIMENT.task


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.batch_size", "--train.batch_size: write it as field=value"),
        ("=5", "write it as field=value"),
        (
            "train.batchsize=5",
            "train.batchsize is no field; the fields are train.batch_size: int =",
        ),
        ("tain.batch_size=5", "tain is no field; the fields are name: str = 'all', task.*, data.*"),
        ("tain.x=5", "task.*, data.*, train.*, mode.*, callbacks"),
        ("mode.x=5", "mode.x is no field; the fields are mode.name, mode.staleness_power, "),
        ("mode.sync_every=1", "is a setting of one mode; name it too: --mode.name=local_sgd"),
        ("mode.round_seconds=1", "name it too: --mode.name=sync or --mode.name=bounded"),
        ("mode.name=sink", "mode.name must be one of async, sync, "),
        ("train.batch_size=many", "train.batch_size must be int, not 'many'"),
        ("train.batch_size=1.5", "train.batch_size must be int, not '1.5'"),
        ("task.deep=1", "task.deep must be bool (true or false), not '1'"),
        ("task.units=64,x", "task.units must be int, not 'x'"),
        ("task.units=64,,32", "task.units must be int, not ''"),
        ("task.limit=x", "task.limit must be int, not 'x'"),
        ("task.hook=x", "cannot be set by a flag"),
        ("task.inner=x", "task.inner holds fields; set one of them: task.inner.rate: float = 0.5"),
        ("task.rate.x=1", "task.rate has no fields to set"),
        ("train.batch_size=0", "train.batch_size=0 must be at least 1"),
        ("data.parse_threads=0", "data.parse_threads=0 must be at least 1"),
    ],
)
def test_what_cannot_be_set_is_explained(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        overrides.apply(EXPERIMENT, [override])
    assert str(caught.value).startswith(f"--{override}: ")
    assert message in str(caught.value)


def test_fields_whose_checks_compare_them_can_be_set_in_any_order() -> None:
    texts = ["train.export_deltas=true", "train.export=last", "train.export_seconds=9"]
    best = overrides.apply(EXPERIMENT, ["train.export=best"])
    for given in itertools.permutations(texts):
        train = overrides.apply(best, given).train
        assert (train.export_deltas, train.export, train.export_seconds) == (True, "last", 9.0)


def test_a_refusal_names_the_flags_of_the_fields_that_it_is_about() -> None:
    texts = ["train.epochs=2", "train.export=best", "train.export_seconds=9"]
    with pytest.raises(UserError) as caught:
        overrides.apply(EXPERIMENT, texts)
    assert str(caught.value).startswith(
        "--train.export=best --train.export_seconds=9: train.export_seconds=9 exports the newest"
    )

    with pytest.raises(UserError) as caught:  # of which one begins with the other's name
        overrides.apply(EXPERIMENT, ["train.export=last", "train.export_seconds=-1"])
    assert str(caught.value).startswith("--train.export_seconds=-1: train.export_seconds=-1.0 must")


@pytest.mark.parametrize("first", ["task.inner=x", "task.inner.rate=2"])
def test_a_field_that_holds_fields_is_never_passed_over(first: str) -> None:
    second = {"task.inner=x": "task.inner.rate=2"}.get(first, "task.inner=x")
    with pytest.raises(UserError, match=r"--task\.inner=x: task\.inner holds fields"):
        overrides.apply(EXPERIMENT, [first, second])


def in_mode(*texts: str, mode: Mode | None = None) -> Mode | None:
    experiment = dataclasses.replace(EXPERIMENT, mode=mode)
    return overrides.apply(experiment, [f"mode.{text}" for text in texts]).mode


@pytest.mark.parametrize("mode", [None, *(kind() for kind in MODES.values())], ids=str)
def test_a_mode_is_named_from_any_config(mode: Mode | None) -> None:
    expected = Sync(backup_workers=1)
    assert in_mode("name=sync", "backup_workers=1", mode=mode) == expected
    assert in_mode("backup_workers=1", "name=sync", mode=mode) == expected  # in any order
    for name, kind in MODES.items():
        assert in_mode(f"name={name}", mode=mode) == kind()
    assert in_mode("name=", mode=mode) is None


def test_settings_of_a_config_stay_while_the_mode_does() -> None:
    mode = Sync(backup_workers=2, round_seconds=5)
    assert in_mode("name=sync", mode=mode) == mode
    assert in_mode("round_seconds=1", mode=mode) == Sync(backup_workers=2, round_seconds=1)
    assert in_mode("name=bounded", mode=mode) == Bounded()


def test_a_field_that_the_mode_lacks_is_refused_with_the_modes_that_have_it() -> None:
    with pytest.raises(UserError) as caught:
        in_mode("backup_workers=1", "name=async", mode=Sync())
    assert str(caught.value) == (
        "--mode.backup_workers=1: mode async has no backup_workers (its settings: staleness_power, "
        "batches_per_exchange); leave it out, or use --mode.name=sync"
    )
    with pytest.raises(
        UserError, match=r"mode allreduce has no max_staleness \(its settings: none"
    ):
        in_mode("max_staleness=1", mode=AllReduce())
