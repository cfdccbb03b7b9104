"""How a run's engine is made."""

import dataclasses

import tfps
from configs.smoke import get_config
from tests.training_fixtures import dataset, inputs_of
from trainer.chief import engine
from trainer.chief.engine import steps_per_iteration


def test_a_long_run_has_more_steps_in_an_iteration_than_a_short_one(tmp_path, monkeypatch):
    # Configs of other tests, which may have been loaded, set others.
    for name, value in (("UNROLL", 10), ("UNROLL_IN_ONE_PROCESS", 3), ("UPDATES_PER_COPY", 1000)):
        monkeypatch.setattr(engine, name, value)
    data = dataset(tmp_path / "data", records=100, shards=1).directory
    experiment = get_config()
    experiment = dataclasses.replace(experiment, data=tfps.Data(train=data))
    inputs = inputs_of(experiment, tmp_path / "job")

    def steps(updates, is_remote):
        train = dataclasses.replace(experiment.train, batch_size=50, epochs=updates // 2)
        settings = dataclasses.replace(
            inputs.settings, experiment=dataclasses.replace(experiment, train=train)
        )
        return steps_per_iteration(inputs._replace(settings=settings), is_remote)

    assert [steps(updates, True) for updates in (2, 1998, 5000, 10_000, 10**8)] == [1, 1, 5, 10, 10]
    assert [steps(updates, False) for updates in (2, 3000, 10**8)] == [1, 3, 3]
