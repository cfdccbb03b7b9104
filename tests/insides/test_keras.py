"""What tfps relies on in Keras beyond its documented interface; docs/tensorflow_insides.md."""

import gc
import random
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.model.embedding_layers import EmbeddingLayers, WholeTableUsedError
from tfps.model.keras_patches import (
    compile_arguments,
    initializers_seeded,
    layers_of,
    schedule_class,
)
from tfps.model.lookup_tables import lookup_tables_taken_over
from tfps.optimizers.rules import _RULES


def test_patched_embedding():
    kind = keras.layers.Embedding
    originals = [kind.build, kind.embeddings, kind.call, kind.set_weights]
    layers = EmbeddingLayers()
    with layers.taken_over():
        rows = keras.layers.Embedding(5, 3, name="rows")
        assert not rows.built
        model = keras.Sequential([keras.Input((2,), dtype="int32"), rows])
    assert [kind.build, kind.embeddings, kind.call, kind.set_weights] == originals
    assert (len(layers.tables), rows.weights) == (1, [])
    assert (type(rows).__name__, type(rows).__module__) == (kind.__name__, kind.__module__)
    # By either name a whole table is asked for.
    own = keras.layers.Embedding(5, 3)
    own.build()
    assert own.embeddings is own._embeddings
    for name in ("embeddings", "_embeddings"):
        with pytest.raises(WholeTableUsedError, match="rows': its whole table is used"):
            getattr(rows, name)
    assert own.variable_serialization_spec[None] == ["embeddings"]
    rows.set_weights([np.ones([5, 3])])
    rows.load_own_variables({"0": np.full([5, 3], 2.0)})
    np.testing.assert_array_equal(layers.tables[0].initializer([5, 3]), np.full([5, 3], 2.0))
    with layers.answered_by(lambda layer, table, ids: tf.ones([*ids.shape, 3])):
        np.testing.assert_array_equal(model(tf.constant([[1, 2]])), np.ones([1, 2, 3]))


class Lists(keras.Model):
    """A model that holds its layers in a list and a dict, and one in another layer."""

    def __init__(self):
        super().__init__()
        self.several = [keras.layers.Dense(2, name="listed")]
        self.named = {"a": keras.layers.Dense(2, name="named")}
        self.within = keras.Sequential([keras.layers.Dense(2, name="deep")], name="within")


def test_layers_of_a_model():
    names = [layer.name for layer in layers_of(Lists())]
    assert sorted(names) == ["deep", "listed", "lists", "named", "within"]


def test_arguments_of_compile():
    def loss(labels, predictions):
        return keras.ops.mean(labels - predictions)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", loss, metrics=["mse"])
    arguments = compile_arguments(model)
    assert arguments["loss"] is loss
    assert arguments["metrics"] == ["mse"]
    assert isinstance(arguments["optimizer"], keras.optimizers.Adam)


def test_the_schedule_of_an_optimizer():
    kind = keras.optimizers.schedules.CosineDecay
    scheduled = keras.optimizers.Adam(kind(0.1, 10))
    assert schedule_class(scheduled) == {"CosineDecay": kind}
    assert schedule_class(keras.optimizers.LossScaleOptimizer(scheduled)) == {"CosineDecay": kind}
    assert schedule_class(keras.optimizers.Adam(0.1)) == {}


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("lora_rank", None),
        ("lora_enabled", False),
        ("quantization_config", None),
        ("quantization_mode", None),
        ("embeddings_constraint", None),
        ("embeddings_regularizer", None),
    ],
)
def test_options_of_an_embedding(name, usual):
    assert getattr(keras.layers.Embedding(5, 3), name) == usual


def test_stateless_scope():
    """It leaves variables alone, and hands out the very tensor it was given where none changed."""
    layer = keras.layers.BatchNormalization()
    layer.build((None, 2))
    mean, variance = tf.zeros([2]), tf.ones([2])
    values = [(layer.moving_mean, mean), (layer.moving_variance, variance)]
    with keras.StatelessScope(state_mapping=values, collect_losses=True) as scope:
        layer(tf.constant([[1.0, 2.0], [3.0, 4.0]]), training=False)
        assert scope.get_current_value(layer.moving_mean) is mean
        layer(tf.constant([[1.0, 2.0], [3.0, 4.0]]), training=True)
    assert scope.get_current_value(layer.moving_mean).numpy().tolist() != [0.0, 0.0]
    assert layer.moving_mean.numpy().tolist() == [0.0, 0.0]


def test_state_of_a_seed_generator():
    """Two numbers at a known path; the second counts the draws."""
    layer = keras.layers.Dropout(0.5)
    [variable] = layer.non_trainable_variables
    assert variable.path.endswith("seed_generator_state")
    drawn = []
    for count in (0, 0, 1):
        begun = tf.constant([7, count], variable.dtype)
        with keras.StatelessScope(state_mapping=[(variable, begun)]) as scope:
            drawn.append(layer(tf.ones([64]), training=True).numpy().tolist())
            assert scope.get_current_value(variable).numpy().tolist() == [7, count + 1]
    assert drawn[0] == drawn[1] != drawn[2]


def test_seeds_of_initializers():
    """Keras draws them with `random.randint`, which a build replaces."""
    draw, seeds = random.randint, []
    for seed in (1, 1, 2):
        with initializers_seeded(seed):
            seeds.append([keras.initializers.GlorotUniform().seed for _ in range(2)])
    assert seeds[0] == seeds[1] != seeds[2]
    assert random.randint == draw


def test_weight_decay_of_a_variable():
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    for name, decays in (("dense/kernel:0", True), ("dense/bias:0", False)):
        variable = types.SimpleNamespace(name=name, _unique_id=name)
        assert optimizer._use_weight_decay(variable) == decays
    listed = keras.optimizers.AdamW()
    kernel, other = tf.Variable(0.0), tf.Variable(0.0)
    listed.exclude_from_weight_decay(var_list=[kernel])
    assert [listed._use_weight_decay(each) for each in (kernel, other)] == [False, True]


@pytest.mark.parametrize("kind", _RULES, ids=lambda kind: kind.__name__)
def test_config_of_an_optimizer(kind):
    config = kind().get_config()
    options = ("clipnorm", "global_clipnorm", "clipvalue", "weight_decay", "learning_rate")
    more = ("use_ema", "loss_scale_factor", "gradient_accumulation_steps")
    assert set(options + more) <= set(config)


def test_loss_of_a_function():
    [kind] = keras.losses.MeanSquaredError.__bases__
    loss = kind(keras.losses.mean_squared_error)
    assert issubclass(kind, keras.losses.Loss)
    assert loss.fn is keras.losses.mean_squared_error
    labels, outputs = tf.constant([1.0, 2.0]), tf.constant([[1.0], [4.0]])
    assert float(loss(labels, outputs)) == 2.0  # labels and outputs of one rank


def test_settings_of_loss_scaling():
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    assert isinstance(scaled.inner_optimizer, keras.optimizers.SGD)
    assert (scaled.initial_scale, scaled.dynamic_growth_steps) == (2.0**15, 2000)


def test_methods_of_a_model():
    """A method that a user's class does not override is the class's own, by identity."""

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return y_pred

    for name in ("compute_loss", "train_step", "test_step", "predict_step"):
        is_own = getattr(Own, name) is not getattr(keras.Model, name)
        assert is_own == (name == "compute_loss")


def test_inputs_of_a_functional_model():
    first, second = keras.Input((), name="first"), keras.Input((), name="second")
    model = keras.Model({"first": first, "second": second}, first + second)
    assert set(model.input) == {"first", "second"}
    assert [each.name for each in keras.Model([first, second], first + second).input] == [
        "first",
        "second",
    ]
    assert not hasattr(type("Plain", (keras.Model,), {})(), "inputs")


def test_global_settings():
    """Equal names after `clear_session`, a policy that can be put back, unfiltered tracebacks."""
    names = []
    for _ in range(2):
        keras.utils.clear_session(free_memory=False)
        names.append(keras.layers.Dense(1).name)
    assert names[0] == names[1]
    keras.config.set_dtype_policy(keras.config.dtype_policy())
    keras.config.disable_traceback_filtering()
    assert not keras.config.is_traceback_filtering_enabled()


def test_patched_lookup_table():
    before = tf.lookup.StaticHashTable.__init__
    with lookup_tables_taken_over():
        layer = keras.layers.IntegerLookup(vocabulary=[5, 7])
    assert tf.lookup.StaticHashTable.__init__ is before
    find = tf.function(layer, autograph=False).get_concrete_function(tf.TensorSpec([2], tf.int64))
    assert find(tf.constant([7, 9], tf.int64)).numpy().tolist() == [2, 0]
    kinds = {
        node.op for each in find.graph.as_graph_def().library.function for node in each.node_def
    }
    assert "HashTableV2" in kinds | {op.type for op in find.graph.get_operations()}


def test_parts_of_a_model_are_trackable():
    lookup = keras.layers.IntegerLookup(vocabulary=[5, 7])
    model = keras.Sequential([keras.Input((1,), dtype="int64"), lookup, keras.layers.Dense(1)])
    found = {id(each) for each in tf.train.TrackableView(model).descendants()}
    assert {id(each) for each in [lookup, *model.variables]} <= found

    class Holder(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.tables = [tf.Variable(1.0)]  # no child of a checkpoint

    holder = Holder()
    children = tf.train.TrackableView.children(holder, "savedmodel", cache={})
    inner = tf.train.TrackableView.children(children["tables"], "savedmodel", cache={})
    assert any(each is holder.tables[0] for each in inner.values())


class _Counted(tf.lookup.KeyValueTensorInitializer):
    """Fills a table with as many keys as a variable says."""

    def __init__(self, variable):
        super().__init__(tf.zeros([0], tf.int64), tf.zeros([0], tf.int64))
        self._variable = variable

    def initialize(self, table):
        keys = tf.range(tf.reduce_sum(self._variable) + 1)
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle, keys=keys, values=keys
        )


def test_a_loaded_model_fills_tables_of_its_own(tmp_path):
    module = tf.Module()
    module.keys = tf.Variable(0, dtype=tf.int64, trainable=False)
    module.table = tf.lookup.StaticHashTable(_Counted(module.keys), -1)
    module.size = tf.function(module.table.size, input_signature=[])
    for keys in (2, 5):
        module.keys.assign(keys)
        tf.saved_model.save(module, str(tmp_path / str(keys)))
    loaded = [tf.saved_model.load(str(tmp_path / name)) for name in ("2", "5", "2")]
    assert [int(each.size()) for each in loaded] == [3, 6, 3]
    del loaded[0]
    gc.collect()
    assert [int(each.size()) for each in loaded] == [6, 3]


def test_variables_of_a_saved_model(tmp_path):
    module = tf.Module()
    module.slices = [
        [tf.Variable(tf.zeros([0, width]), shape=tf.TensorShape([None, width])) for width in (3, 1)]
    ]
    module.rows = tf.function(lambda: tf.shape(module.slices[0][0]), input_signature=[])
    tf.saved_model.save(module, str(tmp_path))
    prefix = str(tmp_path / "variables" / "variables")
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    names = [f"slices/0/{k}/.ATTRIBUTES/VARIABLE_VALUE" for k in range(2)]
    assert [shapes[name] for name in names] == [[0, 3], [0, 1]]
    assert tf.saved_model.load(str(tmp_path)).rows().numpy().tolist() == [0, 3]
