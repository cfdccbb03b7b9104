"""One experiment: what to train, on which data, how. A config's `get_config()` returns it."""

import dataclasses
from collections.abc import Callable, Sequence

import keras

from tfps import arguments
from tfps.data.negatives import DISTRIBUTIONS, UNIFORM, Negatives
from tfps.errors import UserError
from tfps.experiment.mode import MODES, Mode
from tfps.experiment.task import Task

WIRE_DTYPES = ("float32", "bfloat16")
KERAS, LAZY = ROW_UPDATES = ("keras", "lazy")
SUM, EACH = REPEATED_IDS = ("sum", "each")
LAST, BEST, NO_EXPORT = EXPORTS = ("last", "best", "none")
FLOAT32, BFLOAT16, INT8 = EXPORT_DTYPES = ("float32", "bfloat16", "int8")


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the records are.

    Attributes:
        train: Directory of training shards with their manifest, local or `gs://`; or one for each
            epoch, as `A,B,C` or `day-{epoch}` (`tfps.data.training_data.directories`).
        eval: Directory of evaluation shards; empty for no evaluation.
        shuffle_buffer: Records of a shard that are shuffled together; parts of 64 times as many are
            trained in shuffled order. 0 reads every shard in its own order.
        parse_threads: Batches that a worker parses at the same time. Their order stays the same:
            what is read is decided by the seed alone.
        max_bad_records: How many bad records of the training data may be passed over; one more ends
            the run.
        negatives: How many negatives are sampled for each training record while it is read: the
            record with another id, and the label 0.
        negatives_of: Names of the features that a negative has from another record: first the id
            that is drawn, then those that belong to it.
        negatives_by: `uniform`, every other id of the vocabulary is as likely; or `popularity`, an
            id is drawn as often as records have it.
        follow_seconds: How long to wait for another dataset when all that are there are trained;
            then the training ends. `train` names a pattern, of datasets 1, 2, 3 and so on, or the
            directory in which they appear (`tfps.data.dataset_names`). 0 follows none.
    """

    train: str = ""
    eval: str = ""
    shuffle_buffer: int = 8192
    parse_threads: int = 1
    max_bad_records: int = 0
    negatives: int = 0
    negatives_of: tuple[str, ...] = ()
    negatives_by: str = UNIFORM
    follow_seconds: float = 0.0

    def __post_init__(self) -> None:
        arguments.check_fields(self, "data.")
        _refuse_less(self, "data", shuffle_buffer=0, parse_threads=1, max_bad_records=0)
        _refuse_less(self, "data", negatives=0, follow_seconds=0)
        _refuse_others(self, "data", "negatives_by", DISTRIBUTIONS)


@dataclasses.dataclass(frozen=True)
class Train:
    """How to train.

    Attributes:
        batch_size: Records per step of one worker; with `data.negatives` a step also trains theirs.
        epochs: Times every record is trained.
        seed: Seed of initial values, the order of records and dropout.
        checkpoint_seconds: A checkpoint is saved at the end of every epoch, and in between when
            this many seconds have passed since the last.
        checkpoint_in_background: Whether training continues while a checkpoint is written. A ps
            then needs memory for a second copy of its parameters and slots.
        largest_increment: A checkpoint holds only the rows of large tables that were touched since
            the last full one, as long as it has at most this part of a full one's bytes; 0 makes
            every checkpoint a full one.
        keep_checkpoints: Number of newest checkpoints that stay; older ones are deleted.
        keep_checkpoint_hours: In addition, one checkpoint in this many hours stays for good; 0 for
            none.
        dense_table_bytes: An `Embedding` whose table has at most this many bytes (4 per value)
            stays part of the dense parameters, which every step pulls and pushes in whole.
        pipeline_depth: Batches for which a worker pulls parameters ahead of the one it trains: the
            wait for a pull overlaps the computation, and a batch is trained with parameters that
            lack this many of the worker's own last updates. 0 pulls for each batch after the push
            of the one before.
        jit_compile: Whether XLA compiles what a worker computes between pull and push.
        best_metric: Metric by which an evaluation is the best: `loss`, or one of the task's. What
            is better is known of loss, AUC and accuracy; for others write `max:NAME` or `min:NAME`.
        early_stopping: Evaluations in a row without a better one that end the training; 0 for none.
        wire_dtype: Dtype in which parameters and gradients travel between workers and ps: float32,
            or bfloat16 for half the bytes. The ps hold float32 in any case.
        row_updates: What an update does with rows of tables that its batch has not touched:
            `keras`, what Keras's own optimizer does with them, which continues momentum and weight
            decay; `lazy`, nothing.
        repeated_ids: What an optimizer sees of an id that a batch names several times: `sum`, the
            sum of its gradients, as on Keras's other backends; `each`, what Keras does with
            TensorFlow: the square of each of them by itself, and each of them clipped.
        drop_remainder: Whether the last records of a shard that fill no batch are left out of the
            training, for models that need whole batches.
        init_from: Directory of another job, or a checkpoint in it, whose parameters and slots a new
            job begins with; empty for initial values.
        init_layers: Names, paths or patterns of the layers whose parameters are taken of it, with
            new slots; empty for everything.
        export: Which model is exported at the end: that of the `last` checkpoint, of the `best`
            evaluation, or `none`.
        export_dtype: Dtype in which the exported model keeps rows of tables; with int8 each row has
            a float32 scale. A lookup gives float32 in any case.
        keep_exports: Number of newest versions that stay in JOB_DIR/export.
        export_if: Conditions on the model's evaluation, such as `auc>=0.8` or
            `auc>=newest-0.005`; if one does not hold, the model is exported, but not as a version.
            Names as `progressive_auc` are of what the model predicted, before it learnt them, of
            the records since the export before.
        export_seconds: Seconds between two exports while the training goes on, each of the next
            checkpoint; 0 exports at the end alone.
        export_deltas: Whether each checkpoint between two exports is exported as what has changed
            since the newest version, which `trainer.serve` and `tfps.load_model(follow=True)` take
            without loading the version again.
    """

    batch_size: int = 512
    epochs: int = 1
    seed: int = 0
    checkpoint_seconds: float = 600.0
    checkpoint_in_background: bool = True
    largest_increment: float = 0.3
    keep_checkpoints: int = 3
    keep_checkpoint_hours: float = 0.0
    dense_table_bytes: int = 0
    pipeline_depth: int = 0
    jit_compile: bool = False
    best_metric: str = "loss"
    early_stopping: int = 0
    wire_dtype: str = WIRE_DTYPES[0]
    row_updates: str = KERAS
    repeated_ids: str = SUM
    drop_remainder: bool = False
    init_from: str = ""
    init_layers: tuple[str, ...] = ()
    export: str = LAST
    export_dtype: str = FLOAT32
    keep_exports: int = 2
    export_if: tuple[str, ...] = ()
    export_seconds: float = 0.0
    export_deltas: bool = False

    def __post_init__(self) -> None:
        arguments.check_fields(self, "train.")
        _refuse_less(self, "train", batch_size=1, epochs=1, keep_checkpoints=1)
        _refuse_less(self, "train", dense_table_bytes=0, pipeline_depth=0)
        _refuse_less(self, "train", early_stopping=0, keep_exports=1)
        _refuse_less(self, "train", seed=0, export_seconds=0)
        if self.export_seconds and self.export != LAST:
            raise UserError(
                f"train.export_seconds={self.export_seconds:g} exports the newest checkpoint, and "
                f"train.export={self.export} another or none; leave one of them out"
            )
        if self.export_deltas and not (self.export_seconds and self.largest_increment):
            raise UserError(
                "train.export_deltas exports what has changed since a version: give "
                "train.export_seconds, and a train.largest_increment above 0"
            )
        if self.seed >= 1 << 32:
            raise UserError(f"train.seed={self.seed} must be below 2^32, as Keras's seeds are")
        _refuse_others(self, "train", "wire_dtype", WIRE_DTYPES)
        _refuse_others(self, "train", "row_updates", ROW_UPDATES)
        _refuse_others(self, "train", "repeated_ids", REPEATED_IDS)
        _refuse_others(self, "train", "export", EXPORTS)
        _refuse_others(self, "train", "export_dtype", EXPORT_DTYPES)
        if self.checkpoint_seconds <= 0:
            raise UserError(f"train.checkpoint_seconds={self.checkpoint_seconds} must be positive")
        if not 0 <= self.largest_increment <= 1:
            raise UserError(f"train.largest_increment={self.largest_increment} must be from 0 to 1")
        if self.keep_checkpoint_hours < 0:
            raise UserError(
                f"train.keep_checkpoint_hours={self.keep_checkpoint_hours} must be 0 or more"
            )


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A task with its data and training settings.

    Attributes:
        name: Short name, used in messages and default file names.
        task: The user's task.
        data: Where the records are.
        train: How to train.
        mode: How the workers' updates come together, such as `tfps.Sync()`; None for what suits the
            cluster: `Async` with ps, `AllReduce` without, `Local` without a cluster.
        callbacks: Given the task, makes the Keras callbacks that the chief calls; other ones at
            each call, for a chief may begin again. None for none.
    """

    name: str
    task: Task
    data: Data = dataclasses.field(default_factory=Data)
    train: Train = dataclasses.field(default_factory=Train)
    mode: Mode | None = None
    callbacks: Callable[[Task], Sequence[keras.callbacks.Callback]] | None = None

    def __post_init__(self) -> None:
        if self.callbacks is not None and not callable(self.callbacks):
            raise UserError(
                f"Experiment(callbacks={arguments.shown(self.callbacks)}): a chief that begins "
                "again needs fresh callbacks; give a function of the task that makes them: "
                "callbacks=lambda task: [...]"
            )
        if not isinstance(self.mode, Mode | None):
            known = ", ".join(f"tfps.{kind.__name__}()" for kind in MODES.values())
            raise UserError(
                f"Experiment(mode={arguments.shown(self.mode)}): it must be one of {known}, with "
                "its settings in the brackets, or None"
            )
        arguments.check_fields(self, "Experiment(): ")

    def negatives(self) -> Negatives | None:
        """How negatives are sampled for the training records; None for none.

        Raises:
            UserError: If the task has no such records.
        """
        data, task = self.data, self.task
        if not data.negatives:
            return None
        what = data.negatives, data.negatives_of, data.negatives_by
        return Negatives.of(*what, task.features(), task.targets())


def _refuse_less(settings: Data | Train, part: str, **least: int) -> None:
    for name, number in least.items():
        if getattr(settings, name) < number:
            raise UserError(f"{part}.{name}={getattr(settings, name)} must be at least {number}")


def _refuse_others(settings: Data | Train, part: str, name: str, known: tuple[str, ...]) -> None:
    value = getattr(settings, name)
    if value not in known:
        raise UserError(f"{part}.{name}={value} must be one of {', '.join(known)}")
