"""What a run is made from, checked: its settings, its datasets, and the plan of its parameters."""

import dataclasses
import functools
import logging
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import WarmStart
from tfps.cluster.spec import Cluster
from tfps.data import examples
from tfps.data import manifest as manifests
from tfps.data import schema as schemas
from tfps.data.dataset_names import names_of
from tfps.data.followed_data import FollowedData, RunData, position_of
from tfps.data.manifest import Manifest
from tfps.data.record_source import RecordSource
from tfps.data.shard_cache import CachedPaths
from tfps.data.training_data import TrainingData, directories
from tfps.errors import UserError
from tfps.evaluation.history import BestMetric
from tfps.evaluation.metrics import check_metrics, metric_names, try_metrics
from tfps.evaluation.progressive import PROGRESSIVE, Judged, judged_labels
from tfps.experiment.experiment import BEST, NO_EXPORT, WIRE_DTYPES, Experiment
from tfps.experiment.mode import Mode, suited
from tfps.experiment.task import Task
from tfps.export.saved_model import try_export
from tfps.job_dir import JobDir
from tfps.leases.bad_record_log import explain_failure
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.planner.compatibility import refuse_unsuitable
from tfps.planner.memory import check_memory
from tfps.storage import files, objects
from tfps.storage.failures import StorageError
from tfps.storage.objects import Use
from tfps.store.layout import StoreLayout
from trainer.chief import export_conditions
from trainer.chief.callback_choice import Choice, check_callbacks, make_callbacks
from trainer.chief.interruption import has_restarted

_FIRST_RECORDS = 4096  # that are looked at before the work begins
_log = logging.getLogger(__name__)


class DataUse(NamedTuple):
    flag: str
    needs_labels: bool = True


TRAINED, EVALUATED = DataUse("--data.train"), DataUse("--data.eval")


def read_data(
    task: Task,
    directory: str,
    use: DataUse,
    may_be_cut: bool = False,
    may_be_empty: bool = False,
) -> Manifest:
    """Reads a manifest and checks it for the task; `may_be_cut` where bad records are skipped."""
    flag = use.flag
    if not directory:
        raise UserError(f"{flag} is missing: name the directory that trainer.prepare wrote")
    manifest = manifests.read(directory, flag, may_be_cut)
    wanted = task.schema()
    if not manifest.labels and not use.needs_labels:
        wanted = wanted._replace(labels=())
    schemas.check(manifest, wanted, flag)
    if not manifest.records and not may_be_empty:
        raise UserError(f"{flag}={directory} holds no records")
    if manifest.records and not may_be_cut:
        schemas.refuse_missing(manifest.counts, manifest.records, wanted, f"{flag}={directory}")
    return manifest


def first_records(data: Manifest, most: int) -> RecordSource:
    """The first records of a dataset: those of one shard, at most so many."""
    shard = next(shard for shard in data.shards if shard.records)
    end = min(shard.records, most)
    return RecordSource(data.path_of(shard), shard.compression, end=end)


def first_labels(task: Task, data: Manifest) -> dict[str, np.ndarray]:
    """What metrics look at in the first records of a dataset, `[records, ...]` by name."""
    values = first_values(task, data)
    return {each.name: values[each.name].numpy() for each in task.measured()}


def first_values(task: Task, data: Manifest) -> dict[str, tf.Tensor]:
    """The features, and the labels that there are, of the first records of a dataset, by name."""
    source = first_records(data, _FIRST_RECORDS)
    schema = task.schema() if data.labels else task.schema()._replace(labels=())
    try:
        # A dataset's map would trace a function first, for half a second.
        records = source.tensors().from_record(tf.constant(0, tf.int64)).batch(source.end)
        features, labels = examples.parse(next(iter(records)), *schema)
    except tf.errors.OpError as error:
        held = [*task.features(), *task.labels()]
        raise explain_failure(error, "reading the first records", source, held) from None
    return {**features, **labels}


@dataclasses.dataclass(frozen=True)
class RunSettings:
    experiment: Experiment
    cluster: Cluster
    job_dir: JobDir
    ps_memory: int | None = None  # bytes (--ps_memory); None asks each ps
    cache_dir: str = ""
    export: str = ""  # where the model itself goes; "" for versions in JOB_DIR/export
    use: DataUse = TRAINED

    @functools.cached_property
    def mode(self) -> Mode:
        """The experiment's mode, or the usual one of such a cluster."""
        return suited(self.experiment.mode, self.cluster)

    @property
    def follows(self) -> bool:
        """Whether the run trains datasets that appear while it runs."""
        return self.use == TRAINED and self.experiment.data.follow_seconds > 0

    @property
    def is_chief(self) -> bool:
        """Whether this process trains, and others do not repeat what it says and tries."""
        return self.cluster.job == "chief"

    @property
    def evaluator(self) -> str:
        """Who evaluates in place of the workers, for messages; empty where they do."""
        return next((f"evaluator 0 ({address})" for address in self.cluster.evaluators), "")

    def check(self) -> None:
        """Refuses what can be refused before anything is read."""
        _ = self.mode
        self.experiment.negatives()  # refuses those that cannot be sampled
        if self.cluster.is_replicated:
            _refuse_unshared(self.experiment)
        _check_evaluation(self.experiment, self.cluster)
        if self.follows:
            _check_following(self)
        train = self.experiment.train
        for name in ("export_if", "export_seconds"):
            if getattr(train, name) and self.export:
                raise UserError(
                    f"train.{name}: {self.export} is for the model itself, not for its versions; "
                    "leave it out, or deploy the model with --deploy_to"
                )


class RunDatasets(NamedTuple):
    """The datasets of a run, whose records are not read yet."""

    train: RunData
    eval: Manifest | None
    staged: CachedPaths

    @classmethod
    def read(cls, settings: RunSettings) -> "RunDatasets":
        """Reads the manifests, if their buckets can be used."""
        experiment, use = settings.experiment, settings.use
        task, data, train = experiment.task, experiment.data, experiment.train
        follows = settings.follows
        of_epochs = [data.train] if follows else directories(data.train, train.epochs)
        objects.check(
            [
                *(Use(use.flag, directory) for directory in of_epochs),
                Use("--data.eval", data.eval),
                Use("--job_dir", settings.job_dir, writes=True),
            ]
        )
        may_be_cut = data.max_bad_records > 0

        def read(directory: str) -> Manifest:
            trained = read_data(task, directory, use, may_be_cut, follows)
            return _in_whole_batches(trained, experiment) if train.drop_remainder else trained

        trained: RunData
        if follows:
            trained = FollowedData(names_of(data.train), read, data.follow_seconds)
            newest = CheckpointDirectory(settings.job_dir).newest_readable()
            trained.open(position_of(newest.datasets) if newest else None)
        else:
            named = list(dict.fromkeys(of_epochs))
            with ThreadPoolExecutor(max_workers=16) as pool:
                found = dict(zip(named, pool.map(read, named), strict=True))
            trained = TrainingData.of(*(found[directory] for directory in of_epochs))
        evaluated = read_data(task, data.eval, EVALUATED) if data.eval else None
        all_data = [*trained.datasets, *([evaluated] if evaluated else [])]
        if settings.is_chief and not has_restarted():
            _warn_of_nan(task, all_data)
        return cls(trained, evaluated, CachedPaths(settings.cache_dir, all_data))


class RunPlan(NamedTuple):
    """What is trained, where its parameters lie, and how it is measured."""

    model: StatelessModel
    rules: Rules
    layout: StoreLayout
    metric_names: list[str]  # of an evaluation: `loss`, the task's, the model's own
    best_metric: BestMetric

    @classmethod
    def make(cls, settings: RunSettings, data: RunDatasets) -> "RunPlan":
        """Builds the model, and tries what will be done with it."""
        experiment, cluster = settings.experiment, settings.cluster
        task, train = experiment.task, experiment.train
        model = _build_model(settings)
        metrics = list(dict.fromkeys([*metric_names(task), *model.layer_metrics.names]))
        if data.eval and task.measured():
            try_metrics(task, first_labels(task, data.eval), model.prediction_shapes)
        best_metric = BestMetric.of(train.best_metric, metrics)
        judged = Judged.names(judged_labels(task, model.prediction_shapes))
        measured = metrics if data.eval else []
        export_conditions.check(train.export_if, [*measured, *judged])
        rules = Rules.of(task, model, train.row_updates, train.repeated_ids)
        refuse_unsuitable(settings.mode, experiment, model, rules)
        layout = StoreLayout.of(model, rules, max(1, len(cluster.ps)))
        # A process that has begun again has tried it before.
        if settings.is_chief and train.export != NO_EXPORT and not has_restarted():
            try_export(task, model, layout)
        if settings.ps_memory is not None:
            workers = max(1, len(cluster.workers))
            check_memory(layout, workers, settings.ps_memory, train.checkpoint_in_background)
        return cls(model, rules, layout, metrics, best_metric)


class RunInputs(NamedTuple):
    """What can be had, and refused, before another task is needed."""

    settings: RunSettings
    data: RunDatasets
    plan: RunPlan

    @classmethod
    def check(cls, settings: RunSettings) -> "RunInputs":
        """Makes the parts one after the other, and tries what needs them all."""
        settings.check()
        choice = Choice.of(settings.experiment)
        settings = dataclasses.replace(settings, experiment=choice.applied(settings.experiment))
        settings.check()
        data = RunDatasets.read(settings)
        _check_writable(settings)
        inputs = cls(settings, data, RunPlan.make(settings, data))
        if settings.is_chief:
            _check_warm_start(settings, inputs.plan)
            check_callbacks(choice.callbacks, inputs.measured, inputs.has_schedule)
            for note in () if has_restarted() else choice.notes:
                _log.info("%s", note)
        return inputs

    def make_callbacks(self) -> list[keras.callbacks.Callback]:
        """The experiment's callbacks, fresh ones."""
        return make_callbacks(self.settings.experiment, self.measured, self.has_schedule)

    @property
    def measured(self) -> list[str]:
        """The metrics of evaluations, which callbacks may look at."""
        return self.plan.metric_names if self.data.eval else []

    @property
    def has_schedule(self) -> bool:
        """Whether the dense parameters' learning rate is a schedule."""
        return self.plan.rules.dense.has_schedule


def _warn_of_nan(task: Task, datasets: Sequence[Manifest]) -> None:
    """Names the features that make a loss NaN, before it is."""
    for data in datasets:
        if found := schemas.not_finite(data.counts, data.records, task.schema().all):
            _log.warning(
                "%s: records hold a NaN or an infinity: %s. Unless the model masks them, the loss "
                "will not be finite either; leave them out, or write another number",
                data.directory,
                found,
            )


def _check_writable(settings: RunSettings) -> None:
    """Writes and deletes a file in the job_dir, named for this task, since others do the same."""
    job_dir, task = settings.job_dir, settings.cluster.task
    probe = posixpath.join(job_dir, f".writable-{task.file_name}")
    try:
        files.make_directories(job_dir)
        files.write(probe, b"")
        files.remove(probe)
    except StorageError as error:
        raise UserError(
            f"--job_dir={job_dir} cannot be written ({error}); name a directory that every "
            "task can write"
        ) from None


def _in_whole_batches(data: Manifest, experiment: Experiment) -> Manifest:
    """The training data less what fills no batch, which is told."""
    size, limit = experiment.train.batch_size, experiment.data.max_bad_records
    if limit:
        raise UserError(
            f"train.drop_remainder with data.max_bad_records={limit}: a batch without its bad "
            "records is not whole; leave one of them out"
        )
    whole = data.in_whole_batches(size)
    if not whole.records:
        raise UserError(
            f"train.drop_remainder: no shard of --data.train={data.directory} holds a batch of "
            f"{size} records; take fewer shards, or a smaller train.batch_size"
        )
    if left := data.records - whole.records:
        _log.warning(
            "train.drop_remainder: %s of %s records are never trained: the last of each shard that "
            "fill no batch of %d",
            f"{left:,}",
            f"{data.records:,}",
            size,
        )
    return whole


def _check_warm_start(settings: RunSettings, plan: RunPlan) -> None:
    """Looks at what a job begins with that has no checkpoint yet."""
    warm_start = WarmStart.of(settings.experiment.train)
    if warm_start and not CheckpointDirectory(settings.job_dir).names():
        objects.check([Use("--train.init_from", warm_start.path)])
        model = plan.model
        warm_start.check(plan.layout.signature(bool(model.loss_scaling)), model.numberings)


def _build_model(settings: RunSettings) -> StatelessModel:
    task, train = settings.experiment.task, settings.experiment.train
    model = StatelessModel(task, train.seed, train.dense_table_bytes)
    _refuse_unreachable(model, settings.cluster)
    check_metrics(task, model.prediction_names)
    if settings.is_chief and not has_restarted():
        for sentence in model.layer_metrics.unmeasured:
            _log.warning("%s", sentence)
    return model


def _refuse_unshared(experiment: Experiment) -> None:
    """Refuses settings that only mean something where parameters lie on ps."""
    train = experiment.train
    settings = {
        "train.pipeline_depth": (train.pipeline_depth, 0),
        "train.wire_dtype": (train.wire_dtype, WIRE_DTYPES[0]),
        "data.max_bad_records": (experiment.data.max_bad_records, 0),
    }
    for name, (value, only) in settings.items():
        if value != only:
            raise UserError(
                f"{name}={value}: training without ps (--mode.name=allreduce) knows only {only}; "
                "leave it out, or train with ps"
            )


def _check_following(settings: RunSettings) -> None:
    """Refuses what cannot be where datasets are followed."""
    experiment = settings.experiment
    flag = f"data.follow_seconds={experiment.data.follow_seconds:g}"
    if experiment.train.epochs > 1:
        raise UserError(
            f"train.epochs={experiment.train.epochs}: {flag} trains each dataset once; set "
            "--train.epochs=1"
        )
    if experiment.callbacks:
        raise UserError(
            f"experiment {experiment.name!r} has callbacks, which are called at the end of epochs, "
            f"and {flag} trains without any; leave the callbacks out"
        )
    if not experiment.data.train:
        raise UserError(f"{TRAINED.flag} is missing: name the directory in which datasets appear")
    if settings.cluster.is_replicated:
        raise UserError(
            f"{flag}: training without ps (--mode.name=allreduce) follows no datasets; train with "
            "ps, or in one process"
        )
    if settings.cache_dir:
        raise UserError(
            f"--cache_dir={settings.cache_dir} with {flag}: each record is read once, so copies "
            "are of no use; leave it out"
        )


def _refuse_unreachable(model: StatelessModel, cluster: Cluster) -> None:
    """Refuses what would make closures on workers wait for ever."""
    if cluster.ps and model.unreachable:
        raise UserError(
            f"build_model(): the model uses {'; '.join(model.unreachable)}, which lies in the "
            "chief's memory, where workers cannot reach it; use layer.add_weight() for variables "
            "and Keras's lookup layers or tf.lookup.StaticHashTable, made in build_model(), for "
            "tables"
        )


def _check_evaluation(experiment: Experiment, cluster: Cluster) -> None:
    """Refuses what needs evaluations in a run that has none, or not at the end of an epoch."""
    has_evaluator = bool(cluster.evaluators) or cluster.job == "evaluator"
    if experiment.callbacks and has_evaluator:
        raise UserError(
            f"experiment {experiment.name!r} has callbacks, and the job an evaluator, whose "
            "evaluations come when an epoch is over and the callbacks have heard of it; leave the "
            "evaluator out, and the workers evaluate after each epoch, or leave the callbacks out"
        )
    if experiment.data.eval:
        return
    hint = "name evaluation shards with --data.eval, or"
    if experiment.train.export == BEST:
        raise UserError(f"--train.export={BEST} without --data.eval; {hint} leave it out")
    if not all(each.strip().startswith(PROGRESSIVE) for each in experiment.train.export_if):
        gate = f"train.export_if={','.join(experiment.train.export_if)}"
        raise UserError(
            f"{gate} without --data.eval; {hint} compare {PROGRESSIVE}auc and its like alone"
        )
    if has_evaluator:
        raise UserError(f"the job has an evaluator but no --data.eval; {hint} leave it out")
    if experiment.train.early_stopping:
        patience = experiment.train.early_stopping
        raise UserError(
            f"--train.early_stopping={patience} without --data.eval; {hint} leave it out"
        )
