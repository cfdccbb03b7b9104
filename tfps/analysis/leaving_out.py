"""What predictions owe to each part of a record: they are made again with other records' parts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfps.analysis.parts import Part, Records, count_of, exchanged, take

Predict = Callable[[Records], npt.ArrayLike]  # a number for each record, `[n]`

_RANGE = (10, 90)  # percentiles, between which the changes of most exchanges lie


class Effect(NamedTuple):
    """What one part does to a prediction.

    Attributes:
        part: Name of the part.
        change: By how much the prediction is higher than with that part of other records; the mean
            over these.
        low: With a tenth of the other records it is higher by less than this.
        high: With a tenth of them by more than this.
    """

    part: str
    change: float
    low: float
    high: float


class Explanation(NamedTuple):
    """One prediction, and what it owes to the parts of its record.

    Parts that say the same share what they say: left out alone each of them seems to do little. And
    effects do not add up to the distance from the usual prediction.

    Attributes:
        prediction: The prediction.
        usual: The mean prediction of the other records.
        effects: One for each part, the largest first.
    """

    prediction: float
    usual: float
    effects: list[Effect]


class Importance(NamedTuple):
    """What a metric owes to one part of the records.

    Attributes:
        part: Name of the part.
        drop: By how much the metric is lower when the part is shuffled among the records; the mean
            over several times.
        low: The least of these drops.
        high: The largest of them.
    """

    part: str
    drop: float
    low: float
    high: float


def explain(
    predict: Predict, record: Records, others: Records, parts: Sequence[Part]
) -> Explanation:
    """Leaves out one part of a record after the other, by taking it from each of some others.

    Args:
        predict: Asks the model.
        record: A single record.
        others: Records such as the model is given, to take parts from.
        parts: What is left out, one at a time.

    Raises:
        ValueError: If there is not a single record, or there are no others.
    """
    if count_of(record) != 1 or not count_of(others):
        raise ValueError(f"{count_of(record)} records to explain by {count_of(others)} others")
    [own] = _numbers(predict, record)
    copies = take(record, [0] * count_of(others))
    effects = []
    for part in parts:
        changes = own - _numbers(predict, exchanged(copies, part, others))
        low, high = np.percentile(changes, _RANGE)
        effects.append(Effect(part.name, float(changes.mean()), float(low), float(high)))
    effects.sort(key=lambda effect: -abs(effect.change))
    return Explanation(float(own), float(_numbers(predict, others).mean()), effects)


def importance(
    predict: Predict,
    records: Records,
    goodness: Callable[[npt.ArrayLike], float],
    parts: Sequence[Part],
    times: int = 3,
    seed: int = 0,
) -> list[Importance]:
    """Shuffles one part after the other among records, and measures what that costs.

    As in Breiman, "Random forests", Machine Learning 45, 2001: "permutation importance".

    Args:
        predict: Asks the model; here it may give more than a number for each record.
        records: The records.
        goodness: A metric of what is predicted of them; higher is better.
        parts: What is shuffled, one at a time.
        times: How often each is shuffled, each time otherwise.
        seed: By which they are shuffled.

    Returns:
        One for each part, the largest drop first.
    """
    whole = goodness(predict(records))
    orders = [np.random.default_rng([seed, k]).permutation(count_of(records)) for k in range(times)]
    found = []
    for part in parts:
        drops = [
            whole - goodness(predict(exchanged(records, part, take(records, order))))
            for order in orders
        ]
        found.append(Importance(part.name, float(np.mean(drops)), min(drops), max(drops)))
    return sorted(found, key=lambda each: -each.drop)


def _numbers(predict: Predict, records: Records) -> npt.NDArray[np.float64]:
    found = np.asarray(predict(records), "f8")
    if found.size != count_of(records):
        raise ValueError(f"{found.size} numbers are predicted of {count_of(records)} records")
    return found.reshape(-1)
