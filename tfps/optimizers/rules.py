"""Which update rule does what a Keras optimizer does, for each parameter of a model."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import keras

from tfps.errors import UserError, reason_of
from tfps.experiment.experiment import EACH, KERAS, SUM
from tfps.experiment.task import Task
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.adam import Adam
from tfps.optimizers.ftrl import Ftrl
from tfps.optimizers.row_wise_adagrad import RowWiseAdagrad, RowWiseAdagradRule
from tfps.optimizers.simple_rules import Adagrad, Frozen, Lion, RmsProp, Sgd
from tfps.optimizers.update_rule import UpdateRule

_RULES: dict[type[keras.optimizers.Optimizer], type[UpdateRule]] = {
    keras.optimizers.SGD: Sgd,
    keras.optimizers.Adagrad: Adagrad,
    keras.optimizers.Adam: Adam,
    keras.optimizers.AdamW: Adam,
    keras.optimizers.Ftrl: Ftrl,
    keras.optimizers.RMSprop: RmsProp,
    keras.optimizers.Lion: Lion,
    RowWiseAdagrad: RowWiseAdagradRule,
}


@dataclasses.dataclass(frozen=True)
class Rules:
    """How each parameter of a model is updated."""

    dense: UpdateRule
    dense_decays: tuple[bool, ...]  # for every dense variable, whether weight decay applies
    tables: tuple[UpdateRule, ...]
    tables_decay: tuple[bool, ...]
    row_updates: str = KERAS  # how a row changes that no batch touches: as in Keras, or lazily
    repeated_ids: str = SUM

    @classmethod
    def of(
        cls, task: Task, model: StatelessModel, row_updates: str = KERAS, repeated_ids: str = SUM
    ) -> "Rules":
        optimizer = _without_scaling(task.optimizer())
        dense = rule_for(optimizer)
        if dense.slots_per_row:
            raise UserError(
                f"optimizer() returns {type(optimizer).__name__}, which keeps a value for each row "
                "of a table; dense parameters have no rows: return it from table_optimizer(), and "
                "another one, such as keras.optimizers.Adagrad, from optimizer()"
            )
        if repeated_ids == EACH:
            _refuse_gathered(dense, model)
        decays = tuple(_decays(optimizer, variable.value) for variable in model.dense)
        tables: list[UpdateRule] = []
        tables_decay = []
        for table in model.tables:
            if not table.is_trained:
                tables.append(Frozen())
                tables_decay.append(False)
                continue
            optimizer = _without_scaling(task.table_optimizer(table))
            try:
                rule = rule_for(optimizer)
                # Named as Keras names the variable that an Embedding layer would make.
                variable = types.SimpleNamespace(name=f"{table.name}:0", _unique_id=table.name)
                decays_table = _decays(optimizer, variable)
                if repeated_ids == EACH:
                    _refuse_negative_variance(rule)
                if row_updates == KERAS:
                    _refuse_what_cannot_catch_up(rule, decays_table)
                    _refuse_moved_norms(rule, decays_table, table.constraint)
            except UserError as error:
                raise UserError(f"table {table.name!r}: {error}") from None
            tables.append(rule)
            tables_decay.append(decays_table)
        return cls(dense, decays, tuple(tables), tuple(tables_decay), row_updates, repeated_ids)


def rule_for(optimizer: keras.optimizers.Optimizer) -> UpdateRule:
    rule = _RULES.get(type(optimizer))
    if rule is None:
        known = ", ".join(sorted(kind.__name__ for kind in _RULES if kind is not RowWiseAdagrad))
        raise UserError(
            f"optimizer {type(optimizer).__name__} is not supported on parameter servers; "
            f"use one of keras.optimizers: {known}; or, for tables, tfps.RowWiseAdagrad"
        )
    return rule(optimizer)


def rule_of(settings: Mapping[str, Any]) -> UpdateRule:
    kinds = {kind.__name__: kind for kind in _RULES}
    try:
        return rule_for(kinds[settings["class_name"]].from_config(dict(settings["config"])))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"optimizer {settings.get('class_name')} cannot be made again ({reason_of(error)})"
        ) from None


def _refuse_gathered(rule: UpdateRule, model: StatelessModel) -> None:
    """Refuses dense variables whose gradient in Keras has a part for each occurrence of an id."""
    if model.gathered and (rule.takes_squares or rule.clip):
        raise UserError(
            f"train.repeated_ids=each: {', '.join(model.gathered)} is looked up by ids, but lies "
            "with the dense parameters, whose gradients are summed; make it the table of a "
            "keras.layers.Embedding of more than train.dense_table_bytes, or take "
            "train.repeated_ids=sum"
        )


def _refuse_negative_variance(rule: UpdateRule) -> None:
    is_centered = isinstance(rule, RmsProp) and rule.config["centered"]
    if is_centered and rule.clip != "global_clipnorm":
        raise UserError(
            f"optimizer {rule.config['name']}: with centered=True and train.repeated_ids=each the "
            "square of a mean may be larger than the mean of squares, and Keras takes the root of "
            "a negative number; take centered=False, or train.repeated_ids=sum"
        )


def _refuse_what_cannot_catch_up(rule: UpdateRule, decays: bool) -> None:
    if refusal := rule.refusal(decays):
        raise UserError(
            f"optimizer {rule.config['name']}: {refusal}, or train.row_updates=lazy, which leaves "
            "a row alone that no batch touches"
        )


def _refuse_moved_norms(
    rule: UpdateRule, decays: bool, constraint: keras.constraints.Constraint | None
) -> None:
    """Refuses rules after each of whose updates all rows would have to be scaled."""
    # With `NonNeg` it is enough to look at the end of such updates: between two batches a value
    # moves in one direction, and stays at zero once it is there.
    is_of_norms = constraint is not None and type(constraint) is not keras.constraints.NonNeg
    if is_of_norms and rule.moves_untouched(decays):
        raise UserError(
            f"embeddings_constraint {type(constraint).__name__} with optimizer "
            f"{rule.config['name']}: Keras moves a row that no batch touches in every update, and "
            "scales it every time; let table_optimizer() return Adagrad or plain SGD, or use "
            "train.row_updates=lazy, which leaves such a row alone"
        )


def _without_scaling(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that a `LossScaleOptimizer` wraps; `LossScale` does the scaling."""
    is_wrapped = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return optimizer.inner_optimizer if is_wrapped else optimizer


def _decays(optimizer: keras.optimizers.Optimizer, variable: Any) -> bool:
    """Whether an optimizer's weight decay applies to a variable."""
    # `exclude_from_weight_decay` is public, but only this method knows what it was given.
    return bool(optimizer.weight_decay) and optimizer._use_weight_decay(variable)
