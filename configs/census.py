"""A wide and deep model on the census income data (UCI Adult).

Rows are those of `adult.data` and `adult.test`: comma-separated, no header, `?` for a missing
value. As UCI ships it, `adult.test` begins with a remark, which is one bad row.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras

import tfps
from tfps.data.converters import number, token_id

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


VOCABULARIES = {
    "workclass": (
        "Private",
        "Self-emp-not-inc",
        "Self-emp-inc",
        "Federal-gov",
        "Local-gov",
        "State-gov",
        "Without-pay",
        "Never-worked",
    ),
    "education": _words(
        "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc "
        "Assoc-acdm Bachelors Masters Prof-school Doctorate"
    ),
    "marital_status": (
        "Married-civ-spouse",
        "Divorced",
        "Never-married",
        "Separated",
        "Widowed",
        "Married-spouse-absent",
        "Married-AF-spouse",
    ),
    "occupation": _words(
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
        "Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": (
        "Wife",
        "Own-child",
        "Husband",
        "Not-in-family",
        "Other-relative",
        "Unmarried",
    ),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "native_country": _words(
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
        "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
        "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
        "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
        "Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
}
# Lower bounds of the buckets above the first.
BUCKETS = {
    "age": (18, 22, 25, 28, 31, 34, 37, 40, 43, 46, 50, 55, 60, 65, 70),
    "hours_per_week": (10, 20, 30, 35, 40, 41, 46, 51, 60),
    "capital_gain": (1, 2000, 3000, 3500, 4400, 4700, 5100, 6000, 7000, 7500, 9000, 15000, 99999),
    "capital_loss": (1, 1200, 1550, 1650, 1750, 1800, 1850, 1900, 1950, 2000, 2200, 2400),
}
NUMBERS: dict[str, Callable[[float], float]] = {
    "age": lambda years: (years - 38.6) / 13.6,
    "education_num": lambda years: (years - 10.1) / 2.57,
    "hours_per_week": lambda hours: (hours - 40.4) / 12.3,
    "capital_gain": lambda dollars: math.log1p(dollars) / 10.0,
    "capital_loss": lambda dollars: math.log1p(dollars) / 8.0,
    "fnlwgt": lambda people: (math.log1p(people) - 12.0) / 0.63,
}
CROSSES = (
    ("education", "occupation"),
    ("age_bucket", "education"),
    ("age_bucket", "occupation"),
    ("marital_status", "occupation"),
    ("workclass", "occupation"),
    ("hours_per_week_bucket", "occupation"),
)


@dataclasses.dataclass(frozen=True)
class Census(tfps.Task):
    """Crossed ids feed the logit directly (wide); embeddings and numbers feed an MLP (deep).

    Attributes:
        dim: Embedding dimension of the deep part.
        mlp: Units of the hidden layers.
        dropout: Share of hidden units that are dropped.
        batch_norm: Momentum of the moving averages with which hidden layers are normalized; 0 for
            layers that are not.
        learning_rate: Of Adagrad, for tables and dense parameters.
    """

    dim: int = 8
    mlp: tuple[int, ...] = (64, 32)
    dropout: float = 0.1
    batch_norm: float = 0.0
    learning_rate: float = 0.05

    def features(self) -> tuple[tfps.Feature, ...]:
        """Six numbers, and an id per categorical and per bucketed number."""
        numbers = [tfps.Feature(name, "float32") for name in NUMBERS]
        tokens = [tfps.Feature(name, "int64", (), words) for name, words in VOCABULARIES.items()]
        buckets = [
            tfps.Feature(f"{name}_bucket", "int64", (), len(bounds) + 1)
            for name, bounds in BUCKETS.items()
        ]
        return (*numbers, *tokens, *buckets)

    def label(self) -> tfps.Feature:
        """Whether the income is above 50,000 dollars a year."""
        return tfps.Feature("income", "int64", vocabulary=2)

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        inputs = {
            feature.name: keras.Input((), name=feature.name, dtype=feature.dtype)
            for feature in self.features()
        }
        sizes = {feature.name: feature.vocabulary_size for feature in self.features()}
        deep = [keras.ops.expand_dims(inputs[name], 1) for name in NUMBERS]
        wide = []
        for name, size in sizes.items():
            if size:
                deep.append(self.embedding(size, self.dim, name=f"{name}_deep")(inputs[name]))
        for first, second in CROSSES:
            crossed = inputs[first] * sizes[second] + inputs[second]
            size = sizes[first] * sizes[second]
            name = f"{first}_x_{second}"
            wide.append(self.embedding(size, 1, embeddings_initializer="zeros", name=name)(crossed))
        return keras.Model(inputs, self.logits(deep, wide))

    def embedding(self, rows: int, dim: int, **options: Any) -> keras.layers.Layer:
        """The layer of a categorical feature, or of a cross, with `rows` ids."""
        return keras.layers.Embedding(rows, dim, **options)

    def logits(self, deep: Sequence[Any], wide: Sequence[Any]) -> Any:
        """Logits `[batch, 1]` of inputs `[batch, n]` of the MLP, and of parts `[batch, 1]`."""
        hidden = keras.layers.Concatenate(name="concatenated")(deep)
        for index, units in enumerate(self.mlp, start=1):
            hidden = keras.layers.Dense(units, activation="relu", name=f"hidden_{index}")(hidden)
            if self.batch_norm:
                hidden = keras.layers.BatchNormalization(
                    momentum=self.batch_norm, name=f"normalized_{index}"
                )(hidden)
            hidden = keras.layers.Dropout(self.dropout, name=f"dropped_{index}")(hidden)
        return keras.layers.Add(name="logits")(
            [keras.layers.Dense(1, name="deep_logit")(hidden), *wide]
        )

    def loss(self) -> keras.losses.Loss:
        """Binary cross-entropy of logits."""
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adagrad, for tables as well."""
        return keras.optimizers.Adagrad(self.learning_rate)

    def predictions(self, outputs: Any) -> Any:
        """Probabilities `[batch]`."""
        return keras.ops.sigmoid(keras.ops.reshape(outputs, (-1,)))

    def rows(self) -> tfps.RowFormat:
        """The columns of `adult.data`."""
        columns = {name: (name, scaled(scale)) for name, scale in NUMBERS.items()}
        columns |= {name: (name, token_id(words)) for name, words in VOCABULARIES.items()}
        columns |= {f"{name}_bucket": (name, bucket(each)) for name, each in BUCKETS.items()}
        fields = {feature: tfps.Field((name,), read) for feature, (name, read) in columns.items()}
        fields["income"] = tfps.Field(("income",), income)
        return tfps.RowFormat(COLUMNS, ",", fields)


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    return tfps.Experiment("census", Census(), train=tfps.Train(batch_size=128, epochs=10))


def scaled(scale: Callable[[float], float]) -> Callable[[str], float]:
    """What reads a cell with a number, scaled."""
    return lambda text: scale(number(text))


def bucket(bounds: tuple[int, ...]) -> Callable[[str], int]:
    """What reads a cell with a number as the index of the bucket that it lies in."""
    return lambda text: bisect.bisect_right(bounds, number(text))


def income(text: str) -> int:
    """Reads a label; `adult.test` ends its own with a dot."""
    labels = ("<=50K", ">50K")
    try:
        return labels.index(text.removesuffix("."))
    except ValueError:
        raise ValueError(f"is neither {labels[0]} nor {labels[1]}") from None
