"""What has changed since a version was exported, taken by a model that is loaded already."""

import itertools
import pathlib
import threading

import keras
import numpy as np
import pytest

from configs.smoke import get_config
from tests.checkpoint.saved_state import save, saver_of, train
from tests.training_fixtures import Trainer
from tests.worker.test_keyed_modes import Tokens
from tfps.checkpoint import increments
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.errors import RunError, UserError
from tfps.export import delta_writer, deltas
from tfps.export.delta_writer import Agreed
from tfps.export.loaded_model import ExportedModel
from tfps.export.parameters import CheckpointParameters
from tfps.export.saved_model import PLAIN, ExportForm, export
from tfps.export.sliced_variables import RowEncoding
from tfps.job_dir import JobDir
from tfps.optimizers.rules import Rules
from tfps.store import group_layout, partitioned_variable
from trainer.chief.exports import predict_sample
from trainer.datasets.generation import generate

BATCH = {
    "numbers": np.linspace(-1, 1, 80, dtype="f4").reshape(20, 4),
    "token": np.arange(20),
}
DELTAS = 40
FORMS = {
    "whole": PLAIN,
    "slices": ExportForm(whole_bytes=0),
    "int8": ExportForm(RowEncoding("int8")),
}
RULES = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
}
# Every rule with every form, and both of these with ids and with keys.
CASES = [
    pytest.param(rule, form, bool(keys), id=f"{rule}-{form}-{'keys' if keys else 'ids'}")
    for (place, rule), (at, form) in itertools.product(enumerate(RULES), enumerate(FORMS))
    for keys in [(1 + place + at) % 2]
]


@pytest.fixture(scope="module", name="data")
def data_fixture(tmp_path_factory):
    """Datasets of other records each."""
    directory = tmp_path_factory.mktemp("data")
    return [
        generate(get_config(), str(directory / str(seed)), 150, 1, seed, 0, "smoke", False)
        for seed in range(3)
    ]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Groups of any size are held in part, in runs of some hundred rows."""
    for module in (group_layout, increments):
        monkeypatch.setattr(module, "TRACKED_BYTES", 1)
    monkeypatch.setattr(partitioned_variable, "CHUNK_BYTES", 20_000)


class Job:
    """A run that saves, and exports what it saved."""

    def __init__(self, data, task, directory, form=PLAIN):
        self._data = data
        self.trainer = Trainer(data[0], task=task, parts=2)
        self.version = str(directory / "1")
        self._form = form
        self._directory = CheckpointDirectory(JobDir(directory))
        self._saver = saver_of(self._directory, self.trainer.store, largest_increment=1.0)
        self._trained = 0

    def train(self, **settings):
        """Trains the next dataset, and saves."""
        self.trainer.manifest = self._data[self._trained % len(self._data)]
        train(self.trainer, self._trained)
        self._trained += 1
        return save(self._saver, self._trained, **settings)

    def export(self, checkpoint, path=None):
        parameters = self._parameters(checkpoint)
        task = self.trainer.task
        sample = predict_sample(task, parameters, self.trainer.manifest)
        facts = {"checkpoint": checkpoint.name}
        export(task, parameters, path or self.version, sample, self._form, facts)
        return path or self.version

    def write_delta(self, base, checkpoint):
        agreed = Agreed(base.name, checkpoint.name)
        parameters = self._parameters(checkpoint)
        return delta_writer.write(self.version, agreed, parameters, self._form, {})

    def _parameters(self, checkpoint):
        trainer = self.trainer
        rules = Rules.of(trainer.task, trainer.model, "keras", "sum")
        return CheckpointParameters(checkpoint, trainer.model, rules)


def task_of(rule, has_keys=False):
    return Tokens(rule=RULES[rule](), has_keys=has_keys)


def asked(model):
    """What a model answers, its predictions and the rows of its tables."""
    rows = [model.rows(table, np.arange(20)) for table in model.tables]
    by_example = [model.predict(BATCH)["predictions"], *rows]
    return [np.asarray(each) for each in by_example]


def assert_same(found, wanted, units=0.0):
    """To the last bit, or to so many parts of the largest value."""
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=units * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "form", "has_keys"), CASES)
def test_a_version_and_its_delta_are_the_model_of_the_delta(data, tmp_path, rule, form, has_keys):
    # Ftrl's rows are computed from its slots: where a row lies among others decides how the last
    # bit is rounded, and that may decide an int8.
    units = (0.01 if form == "int8" else 3e-7) if rule == "ftrl" else 0.0
    job = Job(data, task_of(rule, has_keys), tmp_path, FORMS[form])
    base = job.train()
    job.export(base)
    model, late = ExportedModel.load(job.version), ExportedModel.load(job.version)
    first = asked(model)
    for number in (1, 2):
        saved = job.train()
        assert saved.increment.base == base.base
        path, delta = job.write_delta(base, saved)
        assert path == f"{job.version}/deltas/{number}"
        assert delta.rows > 0
        assert (model.update(), model.update()) == (True, False)
        wanted = ExportedModel.load(job.export(saved, str(tmp_path / f"full-{number}")))
        assert_same(asked(model), asked(wanted), units)
        assert not np.array_equal(asked(model)[0], first[0])
    # A delta has everything since the version.
    assert late.update()
    assert late.delta == 2
    assert_same(asked(late), asked(model))
    # Also while the next version is being written, of a checkpoint on which others build.
    full = job.train(is_full=True)
    saved = job.train(since=base.name)
    assert (saved.increment.base, saved.increment.since) == (full.base, base.base)
    job.write_delta(base, saved)
    assert model.update()
    wanted = ExportedModel.load(job.export(saved, str(tmp_path / "full-3")))
    assert_same(asked(model), asked(wanted), units)
    assert job.train(since=full.name).increment.since == full.base


@pytest.fixture(name="changing")
def changing_fixture(data, tmp_path):
    """A version with keys that come and go, and the checkpoints that its deltas may be of."""
    job = Job(data, task_of("adagrad", has_keys=True), tmp_path, FORMS["slices"])
    base = job.train()
    job.export(base)
    return job, base, [job.train(), job.train()]


@pytest.mark.slow
def test_no_answer_is_of_a_mixture(changing):
    """Deltas with keys that come and go, beneath threads that ask all the time."""
    job, base, _ = changing
    model, other = ExportedModel.load(job.version), ExportedModel.load(job.version)
    known, found, ended = [asked(other)[0]], [], threading.Event()

    def ask():
        while not ended.is_set():
            found.append(model.predict(BATCH)["predictions"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(DELTAS):
        job.write_delta(base, job.train())
        assert other.update()
        known.append(asked(other)[0])
        assert model.update()
    ended.set()
    for thread in threads:
        thread.join()
    mine = {next(k for k, one in enumerate(known) if np.array_equal(one, x)) for x in found}
    assert len(mine) > DELTAS / 2


@pytest.mark.slow
def test_two_deltas_stay_and_go_with_their_version(changing):
    job, base, saved = changing
    for _ in range(4):
        path, _ = job.write_delta(base, saved[0])
    assert deltas.numbers(job.version) == [3, 4]
    pathlib.Path(path, "delta.json").unlink()
    assert deltas.numbers(job.version) == [3]
    assert job.write_delta(base, saved[0])[0].endswith("/5")
    assert sorted(x.name for x in pathlib.Path(job.version, "deltas").iterdir()) == ["3", "4", "5"]
    job.export(base)
    assert deltas.numbers(job.version) == []


@pytest.mark.slow
def test_a_delta_that_does_not_fit_changes_nothing(changing):
    job, base, saved = changing
    model = ExportedModel.load(job.version)
    before = asked(model)
    path, _ = job.write_delta(base, saved[0])
    described = pathlib.Path(path, "delta.json")
    text = described.read_text()
    described.write_text(text.replace(base.name, "000000000099-000001-000000000000"))
    with pytest.raises(UserError, match="is of the model of checkpoint 000000000099"):
        model.update()
    described.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(UserError, match=r"delta\.json: .*format"):
        model.update()
    described.write_text(text)
    [values] = pathlib.Path(path).glob("values.data-*")
    whole = values.read_bytes()
    values.write_bytes(whole[:-8] + bytes(8))
    with pytest.raises(RunError, match=f"{path} cannot be read"):
        model.update()
    assert_same(asked(model), before)
    assert model.delta == 0
    values.write_bytes(whole)
    assert model.update()
