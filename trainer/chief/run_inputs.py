"""Everything a run is made from, checked."""

import dataclasses
import logging
import posixpath
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import WarmStart
from tfps.cluster.spec import Cluster
from tfps.data import manifest as manifests
from tfps.data import schema as schemas
from tfps.data.batches import Batching, read_batches
from tfps.data.manifest import Manifest
from tfps.data.record_source import RecordSource
from tfps.data.shard_cache import CachedPaths
from tfps.data.training_data import TrainingData, directories
from tfps.errors import UserError
from tfps.evaluation.history import BestMetric
from tfps.evaluation.metrics import check_metrics, metric_names, try_metrics
from tfps.experiment.experiment import BEST, NO_EXPORT, WIRE_DTYPES, Experiment, Train
from tfps.experiment.mode import Mode, suited
from tfps.experiment.task import Task
from tfps.export.exported_files import EXPORT_DIRECTORY
from tfps.export.saved_model import try_export
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
from trainer.chief.callback_checks import make_callbacks
from trainer.chief.interruption import has_restarted

_FIRST_RECORDS = 4096  # that are looked at before the work begins
_log = logging.getLogger(__name__)


class DataUse(NamedTuple):
    """What a dataset is for."""

    flag: str
    needs_labels: bool = True


TRAINED, EVALUATED = DataUse("--data.train"), DataUse("--data.eval")


def read_data(task: Task, directory: str, use: DataUse, may_be_cut: bool = False) -> Manifest:
    """Reads a manifest and checks it for the task; `may_be_cut` where bad records are skipped."""
    flag = use.flag
    if not directory:
        raise UserError(f"{flag} is missing: name the directory that trainer.prepare wrote")
    manifest = manifests.read(directory, flag, may_be_cut)
    wanted = task.schema()
    if not manifest.labels and not use.needs_labels:
        wanted = wanted._replace(labels=())
    schemas.check(manifest, wanted, flag)
    if not manifest.records:
        raise UserError(f"{flag}={directory} holds no records")
    if not may_be_cut:
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
        features, labels = next(iter(read_batches(source.tensors(), Batching(schema, source.end))))
    except tf.errors.OpError as error:
        held = [*task.features(), *task.labels()]
        raise explain_failure(error, "reading the first records", source, held) from None
    return {**features, **labels}


def check_writable(job_dir: str, task: str) -> None:
    """Writes and deletes a file in the job_dir, named for this task, since others do the same."""
    probe = posixpath.join(job_dir, f".writable-{task}")
    try:
        files.make_directories(job_dir)
        files.write(probe, b"")
        files.remove(probe)
    except StorageError as error:
        raise UserError(
            f"--job_dir={job_dir} cannot be written ({error}); name a directory that every "
            "task can write"
        ) from None


@dataclasses.dataclass(frozen=True)
class RunInputs:
    """What can be had, and refused, before another task is needed."""

    experiment: Experiment
    cluster: Cluster
    mode: Mode
    job_dir: str
    export: str
    has_versions: bool
    data: TrainingData
    eval_data: Manifest | None
    model: StatelessModel
    rules: Rules
    layout: StoreLayout
    staged: CachedPaths
    best_metric: BestMetric
    ps_memory: int | None

    @classmethod
    def check(
        cls,
        experiment: Experiment,
        cluster: Cluster,
        job_dir: str,
        ps_memory: int | None,
        cache_dir: str = "",
        export: str = "",
        use: DataUse = TRAINED,
    ) -> "RunInputs":
        """Gathers a run's inputs.

        `ps_memory` is in bytes (--ps_memory), None asks each ps. "" means no `cache_dir`, and for
        `export` versions in JOB_DIR/export.
        """
        mode = suited(experiment.mode, cluster)
        experiment.negatives()  # refuses those that cannot be sampled before anything is read
        if cluster.is_replicated:
            _refuse_unshared(experiment)
        data, eval_data = _read_datasets(experiment, job_dir, use)
        _check_evaluation(experiment, cluster)
        check_writable(job_dir, f"{cluster.job}-{cluster.index}")
        staged = CachedPaths(cache_dir, [*data.datasets, *([eval_data] if eval_data else [])])
        model = _build_model(experiment, cluster)
        best_metric, train = _best_metric(experiment, model, eval_data), experiment.train
        export_conditions.check(train.export_if, _metric_names(experiment.task, model))
        if train.export_if and export:
            raise UserError(
                f"train.export_if: {export} is for the model itself, not for its versions; leave "
                "it out, or deploy the model with --deploy_to"
            )
        rules = Rules.of(experiment.task, model, train.row_updates, train.repeated_ids)
        refuse_unsuitable(mode, experiment, model, rules)
        layout = StoreLayout.of(model, rules, max(1, len(cluster.ps)))
        # A process that has begun again has tried it before.
        if cluster.job == "chief" and train.export != NO_EXPORT and not has_restarted():
            try_export(experiment.task, model, layout)
        if ps_memory is not None:
            workers = max(1, len(cluster.workers))
            check_memory(layout, workers, ps_memory, train.checkpoint_in_background)
        if cluster.job == "chief":
            _check_warm_start(train, job_dir, model, layout)
        inputs = cls(
            experiment=experiment,
            cluster=cluster,
            mode=mode,
            job_dir=job_dir,
            export=export or posixpath.join(job_dir, EXPORT_DIRECTORY),
            has_versions=not export,
            data=data,
            eval_data=eval_data,
            model=model,
            rules=rules,
            layout=layout,
            staged=staged,
            best_metric=best_metric,
            ps_memory=ps_memory,
        )
        if cluster.job == "chief":
            inputs.make_callbacks()  # for what is wrong with them
        return inputs

    @property
    def evaluator(self) -> str:
        """Who evaluates in place of the workers, for messages; empty where they do."""
        return next((f"evaluator 0 ({address})" for address in self.cluster.evaluators), "")

    @property
    def metric_names(self) -> list[str]:
        """Names of an evaluation's metrics: `loss`, the task's, the model's own."""
        return _metric_names(self.experiment.task, self.model)

    def make_callbacks(self) -> list[keras.callbacks.Callback]:
        """The experiment's callbacks, fresh ones."""
        metrics = self.metric_names if self.eval_data else []
        return make_callbacks(self.experiment, metrics, self.rules.dense.has_schedule)


def _best_metric(
    experiment: Experiment, model: StatelessModel, eval_data: Manifest | None
) -> BestMetric:
    """Which evaluation is the best, once all metrics were tried on some records."""
    task = experiment.task
    if eval_data and task.measured():
        try_metrics(task, first_labels(task, eval_data), model.prediction_shapes)
    return BestMetric.of(experiment.train.best_metric, _metric_names(task, model))


def _metric_names(task: Task, model: StatelessModel) -> list[str]:
    return list(dict.fromkeys([*metric_names(task), *model.layer_metrics.names]))


def _read_datasets(
    experiment: Experiment, job_dir: str, use: DataUse
) -> tuple[TrainingData, Manifest | None]:
    """Reads the manifests of the training and the evaluation data, if their buckets can be used."""
    task, data, train = experiment.task, experiment.data, experiment.train
    of_epochs = directories(data.train, experiment.train.epochs)
    objects.check(
        [
            *(Use(use.flag, directory) for directory in of_epochs),
            Use("--data.eval", data.eval),
            Use("--job_dir", job_dir, writes=True),
        ]
    )
    may_be_cut = data.max_bad_records > 0

    def read(directory: str) -> Manifest:
        trained = read_data(task, directory, use, may_be_cut)
        return _in_whole_batches(trained, experiment) if train.drop_remainder else trained

    named = list(dict.fromkeys(of_epochs))
    with ThreadPoolExecutor(max_workers=16) as pool:
        found = dict(zip(named, pool.map(read, named), strict=True))
    trained = TrainingData.of(*(found[directory] for directory in of_epochs))
    return trained, read_data(task, data.eval, EVALUATED) if data.eval else None


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


def _check_warm_start(
    train: Train, job_dir: str, model: StatelessModel, layout: StoreLayout
) -> None:
    """Looks at what a job begins with that has no checkpoint yet."""
    warm_start = WarmStart.of(train)
    if warm_start and not CheckpointDirectory(job_dir).names():
        objects.check([Use("--train.init_from", warm_start.path)])
        warm_start.check(layout.signature(bool(model.loss_scaling)), model.numberings)


def _build_model(experiment: Experiment, cluster: Cluster) -> StatelessModel:
    """Builds the model, and tries what is done with it on the cluster."""
    task, train = experiment.task, experiment.train
    model = StatelessModel(task, train.seed, train.dense_table_bytes)
    _refuse_unreachable(model, cluster)
    check_metrics(task, model.prediction_names)
    if cluster.job == "chief" and not has_restarted():
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
    if experiment.train.export_if:
        gate = f"train.export_if={','.join(experiment.train.export_if)}"
        raise UserError(f"{gate} without --data.eval; {hint} leave it out")
    if has_evaluator:
        raise UserError(f"the job has an evaluator but no --data.eval; {hint} leave it out")
    if experiment.train.early_stopping:
        patience = experiment.train.early_stopping
        raise UserError(
            f"--train.early_stopping={patience} without --data.eval; {hint} leave it out"
        )
