"""What a user brings: features, labels, model, loss, optimizers, metrics."""

import abc
import dataclasses
import functools
import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras

from tfps import arguments
from tfps.data.feature import Feature
from tfps.data.key_rows import KeyRowFiles
from tfps.data.row_format import RowFormat
from tfps.data.schema import Schema
from tfps.errors import RunError, UserError, reason_of
from tfps.experiment import keras_names
from tfps.experiment.metrics import default_metrics
from tfps.layers.dynamic_embedding import KeyOptions


@dataclasses.dataclass(frozen=True)
class Table:
    """A matrix of parameters; a step touches few of its rows.

    Ids lie in `[0, rows)`; with `keys`, of a table without a vocabulary, `rows` is how many there
    are at most. The constraint applies to each updated row by itself. `row_dtype`, in which the ps
    hold rows, is "float32" or "bfloat16".
    """

    name: str
    rows: int
    dim: int
    initializer: keras.initializers.Initializer
    is_trained: bool = True
    constraint: keras.constraints.Constraint | None = None
    keys: KeyOptions | None = None
    rows_from: KeyRowFiles | None = None
    row_dtype: str = "float32"


Metric = Callable[[Any, Any], Any]


class Task(abc.ABC):
    """The contract a user fills in, as a frozen dataclass whose fields flags can override.

    A functional model is called with tensors `[batch, *feature.shape]` for its inputs, which bear
    the features' names; any other model with a dict of them by name, or, when there is a single
    feature, with that tensor itself.

    A task of one label has that label's tensor wherever labels are handed over; a task of several
    has a dict of them by name.

    What the methods of a class of the user's return may have any form of one meaning: a list for a
    tuple, one feature for a tuple of one, a dict of features by their names, the name of a loss or
    of an optimizer of Keras's.
    """

    EXAMPLE: ClassVar[str] = "tfps.task_of(model, label)"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Holds what the methods return to what they promise."""
        super().__init_subclass__(**kwargs)
        for name, kind in _RETURNED.items():
            method = vars(cls).get(name)
            if inspect.isfunction(method) and method is not getattr(Task, name):
                setattr(cls, name, _returning(method, kind))

    @abc.abstractmethod
    def features(self) -> tuple[Feature, ...]:
        """The model's inputs."""

    @abc.abstractmethod
    def label(self) -> Feature | tuple[Feature, ...]:
        """What the model learns: one label, or a tuple of several.

        An empty tuple is one, too: of a model that learns its features, as an autoencoder does.
        """

    def weight(self) -> Feature | Mapping[str, Feature] | tuple[Feature, ...] | None:
        """A number in every record, by which its part in the loss is multiplied in training.

        Of several labels a dict with a number for each, or a tuple in their order, weighs the
        losses of the outputs one by one. It is `sample_weight` in Keras's `fit`: evaluations are
        not weighted, except by a model that overrides `compute_loss`. None for no such number.
        """
        return None

    def group(self) -> Feature | None:
        """The id by which an evaluation's records are ranked, such as that of a user or a query.

        A `GroupedMetric` (`tfps.HitRate` and the like) needs it. One of `features()`, or else a
        value of its own that every record holds. None for no such id.
        """
        return None

    def sample_weight(self, labels: Mapping[str, Any]) -> Any:
        """What each record's part in the loss is multiplied by in training; None for nothing.

        By default the number that `weight()` names. A model that overrides `compute_loss` is given
        it in evaluations, too.

        Args:
            labels: What a batch holds of `labels()`, tensors `[batch, *shape]` by name.

        Returns:
            `[batch]` or `[batch, 1]` float32, or a dict of them by the labels' names; or None.
        """
        weights = {name: labels[weight.name] for name, weight in self.weights().items()}
        is_one = len(weights) == 1 or isinstance(self.weight(), Feature)
        return next(iter(weights.values())) if weights and is_one else weights or None

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """An ordinary Keras 3 model; its `keras.layers.Embedding` layers become tables.

        A model that overrides `compute_loss(x, y, y_pred, sample_weight, training)` gives the loss
        itself, that of regularizers and `add_loss` included; the task then has none. `y` are the
        labels, `sample_weight` is what the task's `sample_weight()` gives, in evaluations too.
        Metrics that a model updates are measured by evaluations.
        """

    def loss(self) -> keras.losses.Loss | Mapping[str, keras.losses.Loss]:
        """Loss of labels `[batch, *label.shape]` and the model's outputs, a mean over the batch.

        Also the name of one, or a function of labels and outputs, as `compile` takes them.

        For several labels, a dict with a loss for each, whose sum is taken; the model's outputs are
        then a dict of the same keys, or a sequence in the order of the labels.

        Raises:
            UserError: If the task does not say.
        """
        raise UserError(
            f"{type(self).__name__} has neither loss() nor compute_loss(), and its model is not "
            "compiled with a loss and does not override compute_loss()"
        )

    def compute_loss(
        self,
        features: Mapping[str, Any],
        labels: Any,
        outputs: Any,
        sample_weight: Any = None,
    ) -> Any:
        """The loss of a batch, a scalar; that of `loss()` unless overridden.

        Of a task without labels it is held against the features: the tensor of a single one, a
        dict of several.

        The model's own losses (regularizers, `add_loss`) are added to it.

        Args:
            features: Tensors `[batch, *shape]` by name.
            labels: Tensor `[batch, *shape]` of the label, a dict by name of several.
            outputs: What the model returned.
            sample_weight: What `sample_weight()` gave, in training; one's own `compute_loss` needs
                no such argument where that gives None.
        """
        loss = self.loss()
        if isinstance(loss, Mapping):
            return sum(self.losses_by_label(features, labels, outputs, sample_weight).values())
        weights = [] if sample_weight is None else [sample_weight]
        return loss(self.truth(features, labels), outputs, *weights)

    def losses_by_label(
        self,
        features: Mapping[str, Any],
        labels: Any,
        outputs: Any,
        sample_weight: Any = None,
    ) -> dict[str, Any]:
        """The losses of a dict that `loss()` gives, scalars by the labels' names."""
        loss = self.loss()
        labels = self.truth(features, labels)
        names = {label.name for label in self.targets()}
        if set(loss) != names:
            raise UserError(
                f"loss() has losses for {', '.join(sorted(loss))}, but the labels are "
                f"{', '.join(sorted(names))}"
            )
        truth = labels if isinstance(labels, Mapping) else dict.fromkeys(names, labels)
        given = self.outputs_by_label(outputs)
        of_each = isinstance(sample_weight, Mapping)
        weights = sample_weight if of_each else dict.fromkeys(names, sample_weight)
        return {name: each(truth[name], given[name], weights[name]) for name, each in loss.items()}

    @abc.abstractmethod
    def optimizer(self) -> keras.optimizers.Optimizer:
        """A Keras 3 optimizer for the dense parameters."""

    def table_optimizer(self, table: Table) -> keras.optimizers.Optimizer:
        """A Keras 3 optimizer for one table; the dense one unless overridden.

        Equal optimizers count as one: its tables of one dimension share a group, and
        `global_clipnorm` is over all that it updates.
        """
        return self.optimizer()

    def predictions(self, outputs: Any) -> Any:
        """What is served and measured, from the model's outputs (say, sigmoid of logits).

        Returns:
            A tensor `[batch, ...]`, or a dict of them by name. By default the outputs, a sequence
            of them by the labels' names.
        """
        label = self.label()
        has_one = isinstance(label, tuple) and len(label) == 1 and not isinstance(outputs, Mapping)
        return self.outputs_by_label(outputs) if _is_sequence(outputs) or has_one else outputs

    def metrics(self) -> Mapping[str, Metric | Mapping[str, Metric]]:
        """Metrics by name: callables of all labels and all predictions of an evaluation.

        Both are NumPy arrays, or dicts of them where `label()` and `predictions()` have several. A
        dict of metrics under a label's name measures that label and the prediction of that name. A
        fresh `keras.metrics.Metric` is such a callable. A `GroupedMetric` is one that is given the
        values of `group()`, too. By default those that fit the loss and the
        label: AUC and accuracy of yes or no, the accuracy of classes, `mse` and `mae` of numbers.
        """
        label, loss = self.label(), self._known_loss()
        if isinstance(label, Feature):
            return default_metrics(label, loss)
        losses = loss if isinstance(loss, Mapping) else {}
        return {each.name: default_metrics(each, losses.get(each.name)) for each in self.targets()}

    def rows(self) -> RowFormat | None:
        """How a row of raw text becomes a record, for `trainer.prepare` and `trainer.predict`.

        By default, which is None, a file's columns have the names of features and labels, and their
        cells are the values: in a CSV file with a header, or in Parquet.

        What a format converts is not part of the exported model, which takes features. Keras layers
        in the model are: prefer them.
        """
        return None

    def targets(self) -> tuple[Feature, ...]:
        """`label()` as a tuple, however many there are."""
        label = self.label()
        return (label,) if isinstance(label, Feature) else tuple(label)

    def labels(self) -> tuple[Feature, ...]:
        """What a record holds besides the features: the targets, and its weight and group if any.

        The group is not among them where it is a feature.
        """
        group = self.group()
        found = tuple(dict.fromkeys((*self.targets(), *self.weights().values())))
        if group is None or group in (*self.features(), *found):
            return found
        return (*found, group)

    def weights(self) -> dict[str, Feature]:
        """What `weight()` names, by the labels' names; empty where there is none."""
        names, weight = [target.name for target in self.targets()], self.weight()
        if weight is None:
            return {}
        if isinstance(weight, Feature):
            if len(names) > 1 and weight.size != 1:
                raise UserError(
                    f"weight {weight.name!r} has shape {weight.shape}, but the labels are "
                    f"{', '.join(names)}; as in Keras's fit it must be one number for all of them, "
                    "or a dict with a weight for each"
                )
            return dict.fromkeys(names or [""], weight)
        if isinstance(weight, Mapping):
            found, given = dict(weight), f"for {', '.join(weight)}"
        else:
            found, given = dict(zip(names, weight, strict=False)), str(len(weight))
        if found.keys() != set(names) or len(found) != len(weight):
            raise UserError(
                f"there are weights {given}, but the labels are {', '.join(names) or 'none'}; give "
                "one for each, as Keras's fit wants it"
            )
        return found

    def measured(self) -> tuple[Feature, ...]:
        """What an evaluation keeps of each record for the metrics: its labels and its group."""
        group, labels = self.group(), self.labels()
        return labels if group is None or group in labels else (*labels, group)

    def schema(self) -> Schema:
        """What a record holds."""
        labels = self.labels()
        for label in labels:
            if label.default is not None:
                raise UserError(
                    f"label {label.name!r} has a default: every record without it would be trained "
                    "and measured as if that were known; leave such records out of the data, or "
                    "write a weight of 0 for them"
                )
        return Schema(self.features(), labels)

    def label_values(self, values: Mapping[str, Any]) -> Any:
        """Values of the labels by name, as this task has them: a single label's is the value."""
        label = self.label()
        if isinstance(label, Feature):
            return values[label.name]
        return {target.name: values[target.name] for target in label}

    def truth(self, features: Mapping[str, Any], labels: Any) -> Any:
        """What outputs are compared with: labels as of `label_values`, or else features."""
        if self.targets():
            return labels
        return dict(features) if len(features) > 1 else next(iter(features.values()))

    def class_factor(self, labels: Mapping[str, Any]) -> Any:
        """What each record's part is multiplied by for its class, in training alone."""
        return None

    def _known_loss(self) -> keras.losses.Loss | Mapping[str, keras.losses.Loss] | None:
        """What `loss()` gives; None where the loss is computed otherwise."""
        is_own = type(self).loss is not Task.loss
        return self.loss() if is_own else None

    def outputs_by_label(self, outputs: Any) -> dict[str, Any]:
        """The model's outputs by the labels' names; a UserError where they are ambiguous."""
        names = [label.name for label in self.targets()]
        if isinstance(outputs, Mapping):
            missing = [name for name in names if name not in outputs]
            if not missing:
                return dict(outputs)
            raise UserError(
                f"the model's outputs are {', '.join(outputs)}, but there is none for the label "
                f"{missing[0]!r}; name them as the labels, or override the task's compute_loss() "
                "and predictions()"
            )
        several = list(outputs) if _is_sequence(outputs) else [outputs]
        if len(several) != len(names):
            raise UserError(
                f"the model has {len(several)} outputs, but there are {len(names)} labels "
                f"({', '.join(names)}); override the task's compute_loss() and predictions()"
            )
        return dict(zip(names, several, strict=True))


def _is_sequence(outputs: Any) -> bool:
    return isinstance(outputs, (list, tuple))


def _returning(method: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """A method of a task whose result is held to an annotation, and what it raises to one line."""
    code, is_own = method.__code__, method.__module__.startswith("tfps.")
    at = "" if is_own else f"{code.co_filename} line {code.co_firstlineno}: "

    @functools.wraps(method)
    def call(self: Task, *args: Any, **kwargs: Any) -> Any:
        where = f"{at}{method.__qualname__}() returns "
        try:
            found = method(self, *args, **kwargs)
        except Exception as error:
            if is_own or isinstance(error, (UserError, RunError)):
                raise
            raise _of_user_code(method, error) from error
        if kind is keras.losses.Loss:
            label = self.label()
            several = () if isinstance(label, Feature) else label
            return keras_names.loss(found, where, [each.name for each in several])
        if kind is keras.optimizers.Optimizer:
            return keras_names.optimizer(found, where)
        return arguments.converted(found, kind, where)

    return call


def _of_user_code(method: Callable[..., Any], error: Exception) -> UserError:
    file = method.__code__.co_filename
    frames = traceback.extract_tb(error.__traceback__)
    # None of them where it was called with other arguments than it takes.
    first = method.__code__.co_firstlineno
    line = [first, *(frame.lineno for frame in frames if frame.filename == file)][-1]
    kind, reason = type(error).__name__, reason_of(error)
    reason = reason if reason.startswith(kind) else f"{kind}: {reason}"
    return UserError(f"{file} line {line}: {method.__qualname__}() raised {reason}")


_RETURNED: dict[str, Any] = {
    "features": tuple[Feature, ...],
    "label": Feature | tuple[Feature, ...],
    "weight": Feature | Mapping[str, Feature] | tuple[Feature, ...] | None,
    "group": Feature | None,
    "build_model": keras.Model,
    "loss": keras.losses.Loss,
    "optimizer": keras.optimizers.Optimizer,
    "table_optimizer": keras.optimizers.Optimizer,
    "metrics": Mapping[str, Metric | Mapping[str, Metric]],
    "rows": RowFormat | None,
}
