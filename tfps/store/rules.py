"""Which update rule does what a Keras optimizer does."""

import keras

from tfps.errors import UserError
from tfps.store.adagrad import Adagrad
from tfps.store.adam import Adam
from tfps.store.sgd import Sgd
from tfps.store.update_rule import UpdateRule

_RULES: dict[type, type[UpdateRule]] = {
    keras.optimizers.SGD: Sgd,
    keras.optimizers.Adagrad: Adagrad,
    keras.optimizers.Adam: Adam,
}


def rule_for(optimizer: keras.optimizers.Optimizer) -> UpdateRule:
    """The rule that does what a Keras 3 optimizer does.

    Raises:
        UserError: If the optimizer, or one of its options, has no rule.
    """
    rule = _RULES.get(type(optimizer))
    if rule is None:
        known = ", ".join(sorted(kind.__name__ for kind in _RULES))
        raise UserError(
            f"optimizer {type(optimizer).__name__} is not supported on parameter servers; "
            f"use one of keras.optimizers: {known}"
        )
    return rule(optimizer)
