"""Tasks that are made of compiled Keras models, beside what Keras's `fit` makes of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from configs.smoke import Smoke
from tests.measured import task_metrics
from tests.models import Unloadable
from tests.training_fixtures import Trainer
from tfps.errors import UserError
from tfps.evaluation.metrics import metric_names
from tfps.export.keras_file import trained_model
from tfps.model.stateless_model import StatelessModel

RECORDS, BATCH, IDS = 512, 64, 30
LABEL = tfps.Feature("label", "float32")
DRAW = np.random.default_rng(3)
X = {
    "id": DRAW.integers(0, IDS, RECORDS),
    "x": DRAW.standard_normal((RECORDS, 3)).astype("f4"),
}
Y = (X["x"].sum(1) + X["id"] % 2 > 0.5).astype("f4")
FEATURES = (tfps.Feature("id", "int64", (), IDS), tfps.Feature("x", "float32", (3,)))


def layers():
    id_in, x = keras.Input((), name="id", dtype="int64"), keras.Input((3,), name="x")
    row = keras.layers.Embedding(IDS, 4, name="table")(id_in)
    hidden = keras.layers.Dense(8, "relu")(keras.layers.Concatenate()([row, x]))
    return [id_in, x], hidden


def compiled(**arguments):
    inputs, hidden = layers()
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    given = {"optimizer": "adagrad", "loss": "binary_crossentropy", "metrics": ["accuracy", "AUC"]}
    model.compile(**{**given, **arguments})
    return model


def trained(task, directory, weights=None):
    """A trainer that has gone through the records twice, in their order."""
    manifest = tfps.write_dataset(
        str(directory), X, Y, weights, task.features(), task.targets(), name="records"
    )
    trainer = Trainer(manifest, task, batch_size=BATCH, shuffle_buffer=0)
    queue = trainer.queue(2)
    for _ in range(2):
        trainer.coordinator.train(queue, lambda: False, lambda progress: None)
        queue.next_epoch()
    return trainer


def evaluated(trainer):
    found = trainer.evaluate()
    metrics = task_metrics(trainer.task, found.labels, found.predictions)
    return {"loss": found.loss, **metrics}


def fitted(model, **arguments):
    model.fit(X, Y, BATCH, 2, shuffle=False, verbose=0, **arguments)
    return model.evaluate(X, Y, BATCH, verbose=0, return_dict=True)


def test_a_compiled_model_ends_where_fit_ends(tmp_path):
    model = compiled(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
    task = tfps.task_of(model, LABEL, FEATURES)
    before = [variable.numpy() for variable in model.variables]
    ours = evaluated(trained(task, tmp_path))
    assert metric_names(task) == list(ours) == ["loss", "accuracy", "AUC"]
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)  # it was a copy that was trained
    theirs = fitted(model)
    assert theirs["loss"] < 0.5
    assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize(
    "names",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in ("weight", "class")), "both"],
)
def test_weights_of_records_and_classes_are_those_of_fit(tmp_path, names):
    weights = np.linspace(0, 2, RECORDS).astype("f4") if names != "class" else None
    classes = {0: 0.5, 1: 3.0} if names != "weight" else None
    weight = tfps.Feature("sample_weight", "float32") if names != "class" else None
    model = compiled(optimizer=keras.optimizers.SGD(0.1))
    task = tfps.task_of(model, LABEL, FEATURES, sample_weight=weight, class_weight=classes)
    ours = evaluated(trained(task, tmp_path, weights))
    if names == "both":  # which Keras's `fit` does not take: the weight of the class comes second
        weights = weights * np.where(Y > 0.5, classes[1], classes[0])
        classes = None
    theirs = fitted(model, sample_weight=weights, class_weight=classes)
    assert ours == pytest.approx(theirs, abs=1e-5)


class Warming(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule as Keras's guides write it, whose class nobody has registered."""

    def __init__(self, peak):
        self.peak = peak

    def __call__(self, step):
        return self.peak * keras.ops.minimum((keras.ops.cast(step, "float32") + 1) / 10, 1.0)

    def get_config(self):
        return {"peak": self.peak}


class Nameless(Warming):
    def get_config(self):
        return keras.optimizers.schedules.LearningRateSchedule.get_config(self)


@pytest.mark.slow
def test_a_schedule_of_one_s_own_trains_as_in_fit(tmp_path):
    model = compiled(optimizer=keras.optimizers.SGD(Warming(0.2)))
    task = tfps.task_of(model, LABEL, FEATURES)
    assert evaluated(trained(task, tmp_path)) == pytest.approx(fitted(model), abs=1e-5)
    with pytest.raises(UserError, match=r"learning rate of SGD has no get_config\(\)"):
        tfps.task_of(compiled(optimizer=keras.optimizers.SGD(Nameless(0.2))), LABEL, FEATURES)


class Weighted(keras.Model):
    """Its loss is a mean that weights divide, as that of sequences without their padding."""

    def __init__(self):
        super().__init__()
        self.table, self.dense = keras.layers.Embedding(IDS, 4), keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(keras.ops.concatenate([self.table(inputs["id"]), inputs["x"]], 1))

    def compute_loss(self, x, y, y_pred, sample_weight):
        weights = keras.ops.reshape(sample_weight, (-1,))
        return keras.ops.sum((y_pred[:, 0] - y) ** 2 * weights) / keras.ops.sum(weights)


def weighted():
    model = Weighted()
    model.compile(keras.optimizers.SGD(0.1))
    return model


@pytest.mark.slow
def test_a_loss_of_the_model_s_own_is_given_the_records_weights_in_evaluations_too(tmp_path):
    weights = np.linspace(0, 2, RECORDS).astype("f4")
    weight = tfps.Feature("sample_weight", "float32")
    task = tfps.task_of(weighted, LABEL, FEATURES, weight, class_weight={1: 3.0})
    trainer = trained(task, tmp_path, weights)
    plain = trained_model(task, trainer.model, trainer.store)
    plain.compile(keras.optimizers.SGD(0.1))
    theirs = plain.evaluate(X, Y, BATCH, sample_weight=weights, verbose=0)
    assert evaluated(trainer) == {"loss": pytest.approx(theirs, rel=1e-5)}  # and no metric


def test_a_loss_that_needs_weights_that_no_record_has_is_refused_with_what_it_was_given():
    with pytest.raises(
        UserError,
        match=r"compute_loss\(\) of Weighted fails in training on labels \{label: float32 "
        r"\(None,\)\} and outputs float32 \(None, 1\), sample_weight None: ",
    ):
        StatelessModel(tfps.task_of(weighted, LABEL, FEATURES), seed=0)


class Unweighable(Smoke):
    def sample_weight(self, labels):
        return labels["weight"]


def test_what_sample_weight_raises_is_said_of_it():
    with pytest.raises(
        UserError, match=r"^sample_weight\(\) of Unweighable fails on labels \{label: int64 "
    ):
        StatelessModel(Unweighable(), seed=0)


def two_heads(are_named=True):
    inputs, hidden = layers()
    heads = {name: keras.layers.Dense(1, "sigmoid", name=name)(hidden) for name in ("click", "buy")}
    losses, shares = dict.fromkeys(heads, "binary_crossentropy"), {"click": 0.5, "buy": 2.0}
    if not are_named:
        heads, losses, shares = (list(each.values()) for each in (heads, losses, shares))
    model = keras.Model(inputs, heads)
    model.compile(keras.optimizers.SGD(0.3), losses, loss_weights=shares)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("are_named", [True, False])
def test_weights_of_each_output_are_those_of_fit(tmp_path, are_named):
    labels = {"click": Y, "buy": (X["x"][:, 0] > 0).astype("f4")}
    weights = {"click": DRAW.integers(0, 2, RECORDS), "buy": np.linspace(0, 3, RECORDS)}
    weights = {name: each.astype("f4") for name, each in weights.items()}
    features = {name: tfps.Feature(f"of_{name}", "float32") for name in weights}
    model = two_heads(are_named)
    task = tfps.task_of(
        model,
        [tfps.Feature(name, "float32") for name in labels],
        FEATURES,
        sample_weight=features if are_named else list(features.values()),
    )
    columns = labels | {f"of_{name}": each for name, each in weights.items()}
    manifest = tfps.write_dataset(str(tmp_path), X, columns, None, task.features(), task.labels())
    trainer = Trainer(manifest, task, batch_size=BATCH, shuffle_buffer=0)
    queue = trainer.queue(2)
    for _ in range(2):
        trainer.coordinator.train(queue, lambda: False, lambda progress: None)
        queue.next_epoch()
    ours = trainer.evaluate().loss
    if not are_named:
        labels, weights = list(labels.values()), list(weights.values())
    model.fit(X, labels, BATCH, 2, sample_weight=weights, shuffle=False, verbose=0)
    theirs = model.evaluate(X, labels, BATCH, verbose=0, return_dict=True)["loss"]
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_aclass_factor_counts_for_its_number_alone():
    """As in Keras: a class of -1, of labels that are missing, is not the last."""
    weights = {-1: 0.0, 1: 3.0, 1 << 40: 7.0}
    task = tfps.task_of(compiled, LABEL, FEATURES, class_weight=weights)
    labels = np.array([-1, 0, 1, 2, 1 << 40], "i8")
    given = task.class_factor({"label": tf.constant(labels)})
    assert given.numpy().tolist() == [0.0, 1.0, 3.0, 1.0, 7.0]
    as_floats = task.class_factor({"label": tf.constant(labels[:4], tf.float32)[:, tf.newaxis]})
    assert as_floats.numpy().tolist() == [0.0, 1.0, 3.0, 1.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"click": LABEL}, "there are weights for click, but the labels are click, buy; give one "),
        ((LABEL,), "there are weights 1, but the labels are click, buy; give one for each"),
        (tfps.Feature("w", "float32", (2,)), r"weight 'w' has shape \(2,\), but the labels are"),
    ],
)
def test_weights_that_are_not_for_each_label_are_refused(weights, message):
    labels = [tfps.Feature(name, "float32") for name in ("click", "buy")]
    with pytest.raises(UserError, match=message):
        tfps.task_of(two_heads, labels, FEATURES, sample_weight=weights)


def test_several_outputs_have_weighted_losses_and_metrics_of_their_own():
    def build():
        inputs, hidden = layers()
        heads = [keras.layers.Dense(1, name=name)(hidden) for name in ("price", "stay")]
        model = keras.Model(inputs, heads)
        model.compile(
            "adam",
            loss={"price": "mse", "stay": keras.losses.BinaryCrossentropy(from_logits=True)},
            loss_weights={"price": 0.25, "stay": 2.0},
            metrics={"price": ["mae", keras.metrics.RootMeanSquaredError()]},
            weighted_metrics=[["mse"], ["accuracy"]],
        )
        return model

    labels = (tfps.Feature("price", "float32"), tfps.Feature("stay", "float32"))
    task = tfps.task_of(build, labels, FEATURES)
    model = StatelessModel(task, seed=0)
    names = ["price_mae", "price_root_mean_squared_error", "price_mse", "stay_accuracy"]
    assert metric_names(task) == ["loss", *names]
    features = {"id": tf.constant([1, 2], tf.int64), "x": tf.ones([2, 3])}
    given = {"price": tf.constant([3.0, 5.0]), "stay": tf.constant([0.0, 1.0])}
    dense = [tf.zeros(variable.shape) for variable in model.dense]
    seed = tf.zeros([2], tf.int64)
    forward = model.forward(dense, [], [tf.zeros([2, 4])], seed, features, given, training=True)
    assert float(forward.loss) == pytest.approx(0.25 * 17 + 2 * np.log(2), rel=1e-6)
    predictions = {"price": np.array([[1.0], [2.0]]), "stay": np.array([[0.2], [0.9]])}
    values = task_metrics(task, {name: each.numpy() for name, each in given.items()}, predictions)
    assert values == pytest.approx(dict(zip(names, [2.5, 6.5**0.5, 6.5, 1.0], strict=True)))


@pytest.mark.slow
def test_a_model_without_labels_learns_its_features(tmp_path):
    def build():
        model = keras.Sequential(
            [keras.Input((3,), name="x"), keras.layers.Dense(2), keras.layers.Dense(3)]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    model = build()
    task = tfps.task_of(model, (), FEATURES[1:])
    manifest = tfps.write_dataset(str(tmp_path), X["x"], features=task.features())
    assert manifest.labels == []
    trainer = Trainer(manifest, task, batch_size=BATCH, shuffle_buffer=0)
    queue = trainer.queue(2)
    for _ in range(2):
        trainer.coordinator.train(queue, lambda: False, lambda progress: None)
        queue.next_epoch()
    ours = trainer.evaluate()
    model.fit(X["x"], X["x"], BATCH, 2, shuffle=False, verbose=0)
    assert ours.loss == pytest.approx(model.evaluate(X["x"], X["x"], BATCH, verbose=0), abs=1e-6)
    trainer.export(tmp_path / "export")


def test_features_are_the_inputs_of_a_functional_model():
    task = tfps.task_of(compiled(), LABEL)
    expected = (tfps.Feature("id", "int64"), tfps.Feature("x", "float32", (3,)))
    assert task.features() == expected


def uncopied():
    inputs, hidden = layers()
    model = keras.Model(inputs, keras.layers.Dense(1)(Unloadable(np.ones(8, "f4"))(hidden)))
    model.compile("adam", "mse")
    return model


def made_before():
    model = compiled()
    return lambda: model


def of_model(model, **more):
    return lambda: StatelessModel(tfps.task_of(model, LABEL, FEATURES, **more), seed=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of_model(keras.Model(*layers())), "'functional.*' is not a compiled model; comp"),
        (lambda: of_model(lambda: keras.Model(*layers())), "is not a compiled model; compile it"),
        (lambda: of_model(7), r"task_of\(\): model=7 must be a keras.Model or a function"),
        (lambda: of_model(len), "the function that makes the model fails: len"),
        (lambda: of_model(uncopied()), r"cannot be copied, .*; hand over the function that makes"),
        (lambda: of_model(made_before()), "'table' was built before, .*; make the model in build_"),
        (lambda: lambda: tfps.task_of(compiled, LABEL), "features= is missing: only the inputs"),
        (
            lambda: lambda: tfps.task_of(compiled(), (), FEATURES, class_weight={1: 2.0}),
            "class_weight= is for a model with one label, not 0",
        ),
    ],
)
def test_what_cannot_be_a_task_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()()


class Share(keras.metrics.Metric):
    """A metric that does not say what it was made with."""

    def __init__(self, of):
        super().__init__(name="share")
        self.of = of

    def update_state(self, labels, predictions, sample_weight=None):
        pass

    def result(self):
        return self.of


def test_metrics_are_made_again_for_each_evaluation():
    """Their variables are lost with those of a process that becomes a chief."""
    given = keras.metrics.MeanAbsoluteError(name="off")
    task = tfps.task_of(compiled(metrics=[given]), LABEL, FEATURES)
    labels, predictions = {"label": np.ones(3)}, {"predictions": np.zeros([3, 1])}
    for _ in range(2):
        assert task_metrics(task, labels, predictions) == {"off": 1.0}
    assert float(given.result()) == 0.0
    task = tfps.task_of(compiled(metrics=[Share(1)]), LABEL, FEATURES)
    with pytest.raises(UserError, match=r"'share' .* cannot make the metric 'share' again .*get_c"):
        task_metrics(task, labels, predictions)


def test_a_task_of_ones_own_may_leave_the_loss_to_its_compiled_model():
    class Compiled(tfps.Task):
        def features(self):
            return FEATURES

        def label(self):
            return LABEL

        def build_model(self):
            return compiled()

        def optimizer(self):
            return keras.optimizers.Adam()

    assert StatelessModel(Compiled(), seed=0).prediction_names == ("predictions",)
