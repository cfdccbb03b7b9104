"""What is told of a config."""

import dataclasses

import pytest

import tfps
from configs.smoke import Smoke, get_config
from trainer.chief.observer import settings_of, without_secret


@dataclasses.dataclass(frozen=True)
class WithKey(Smoke):
    api_key: str = "abc"
    dbPassword: str = "abc"  # noqa: N815 - as some write them


def test_all_fields_are_told_but_for_secrets():
    experiment = dataclasses.replace(
        get_config(), task=WithKey(dim=7), train=tfps.Train(batch_size=9)
    )
    found = settings_of(experiment)
    assert (found["task.dim"], found["train.batch_size"], found["mode.name"]) == ("7", "9", "")
    assert (found["task.api_key"], found["task.dbPassword"]) == ("(not shown)",) * 2
    assert "abc" not in found.values()


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("train.epochs=3", "train.epochs=3"),
        ("task.access_key=abc=", "task.access_key=(not shown)"),
        ("task.authToken=abc", "task.authToken=(not shown)"),
        ("task.keys=7", "task.keys=7"),
        ("task.max_tokens=7", "task.max_tokens=7"),
    ],
)
def test_overrides_too(override, told):
    assert without_secret(override) == told
