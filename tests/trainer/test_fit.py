"""`tfps.fit` beside Keras's `fit` on the same arrays, and what it keeps."""

import logging
import os
import random
import signal
import threading

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tfps
from tfps.errors import UserError

RECORDS, BATCH = 640, 32


def drawn():
    rng = np.random.default_rng(3)
    x = {
        "user": rng.integers(0, 20, RECORDS),
        "numbers": rng.normal(size=(RECORDS, 3)).astype("f4"),
    }
    score = x["numbers"].sum(1) + (x["user"] % 3) - 1
    y = {"sold": (score > 0).astype("f4"), "days": (2 - score / 2).astype("f4")}
    return x, y


def two_outputs(rate=0.01):
    keras.utils.set_random_seed(1)
    user = keras.Input((), name="user", dtype="int64")
    numbers = keras.Input((3,), name="numbers")
    parts = [keras.layers.Embedding(20, 4)(user), numbers]
    hidden = keras.layers.Dense(16, "relu")(keras.layers.Concatenate()(parts))
    outputs = {
        "sold": keras.layers.Dense(1, "sigmoid", name="sold")(hidden),
        "days": keras.layers.Dense(1, name="days")(hidden),
    }
    model = keras.Model({"user": user, "numbers": numbers}, outputs)
    losses = {"sold": "binary_crossentropy", "days": "mae"}
    model.compile(keras.optimizers.Adam(rate), losses, metrics={"sold": ["AUC"]})
    return model


def one_output():
    keras.utils.set_random_seed(1)
    layers = [keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")]
    model = keras.Sequential(layers)
    model.compile("adagrad", "binary_crossentropy")
    return model


def last_part(x, share=0.2):
    first = int(RECORDS * (1 - share))
    return {name: values[first:] for name, values in x.items()}


def test_it_ends_where_fit_ends(tmp_path):
    x, y = drawn()
    options = {"epochs": 4, "batch_size": BATCH, "validation_split": 0.2}
    model, theirs = two_outputs(), two_outputs()
    before = theirs.evaluate(last_part(x), last_part(y), verbose=0)[0]
    history = tfps.fit(model, x, y, job_dir=str(tmp_path), **options)
    expected = theirs.fit(x, y, verbose=0, **options).history
    assert history.epoch == [0, 1, 2, 3]
    assert history.history["loss"][-1] < history.history["loss"][0]
    # `fit` measures the training records too; of both, evaluations have the same names.
    assert set(history.history) == {"loss", *(name for name in expected if "val_" in name)}
    moved = before - expected["val_loss"][-1]
    assert moved > 0.3
    assert abs(history.history["val_loss"][-1] - expected["val_loss"][-1]) < 0.1 * moved
    measured = model.evaluate(last_part(x), last_part(y), verbose=0, return_dict=True)
    assert measured["loss"] == pytest.approx(history.history["val_loss"][-1], rel=1e-5)
    assert (tmp_path / "report.html").exists()
    assert tfps.load_model(str(tmp_path)).predict(last_part(x))["sold"].shape[0] == 128


@pytest.mark.slow
def test_best_weights_are_restored(tmp_path):
    x, y = drawn()
    stopping = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
    model = two_outputs(rate=0.3)  # too large: it gets worse again
    history = tfps.fit(
        model,
        x,
        y,
        job_dir=str(tmp_path),
        epochs=12,
        callbacks=[stopping],
        validation_data=(last_part(x), last_part(y)),
    )
    losses = history.history["val_loss"]
    assert len(losses) < 12
    measured = model.evaluate(last_part(x), last_part(y), verbose=0)[0]
    assert measured == pytest.approx(min(losses), rel=1e-5)
    assert min(losses) < losses[-1]
    assert stopping.restore_best_weights


class _Interrupt(keras.callbacks.Callback):
    def __init__(self, epoch, number=signal.SIGINT):
        super().__init__()
        self._epoch, self._number = epoch, number

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self._epoch:
            os.kill(os.getpid(), self._number)


@pytest.mark.slow
def test_a_signal_whose_handler_returns_ends_it_all_the_same(tmp_path):
    (x, y), model = drawn(), two_outputs()
    seen, states = [], (random.getstate(), np.random.get_state()[1].tolist())
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    stop = _Interrupt(0, signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            tfps.fit(model, x, y, callbacks=[stop], job_dir=str(tmp_path), epochs=3)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (seen, ended.value.code) == ([signal.SIGTERM], 128 + signal.SIGTERM)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert keras.config.is_traceback_filtering_enabled()


@pytest.mark.slow
def test_an_interrupt_saves_and_the_same_call_resumes(tmp_path):
    x, y = drawn()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    levels = [logging.getLogger(name).level for name in ("tfps", "trainer")]
    options = {"job_dir": str(tmp_path), "epochs": 3, "batch_size": BATCH}
    with pytest.raises(KeyboardInterrupt):
        tfps.fit(two_outputs(), x, y, callbacks=[_Interrupt(1)], **options)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [logging.getLogger(name).level for name in ("tfps", "trainer")] == levels
    seen = []
    count = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    model = two_outputs()
    history = tfps.fit(model, x, y, callbacks=[count], **options)
    assert (history.epoch, seen) == ([0, 1, 2], [0, 1, 2])
    again = two_outputs()
    assert tfps.fit(again, x, y, **options).history == history.history
    for mine, others in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, others)


@pytest.mark.slow
def test_a_single_array_and_weights(tmp_path):
    x, y = drawn()
    sold = y["sold"]
    model, by_class = one_output(), one_output()
    weight = np.where(sold, 3, 1).astype("f4")
    options = {"epochs": 3, "shuffle": False, "verbose": False}
    weighted = {"sample_weight": weight, "validation_data": (x["numbers"], sold)}
    tfps.fit(model, x["numbers"], sold, job_dir=str(tmp_path / "a"), **weighted, **options)
    classes = {0: 1.0, 1: 3.0}
    job_dir = str(tmp_path / "b")
    tfps.fit(by_class, x["numbers"], sold, job_dir=job_dir, class_weight=classes, **options)
    for mine, others in zip(model.get_weights(), by_class.get_weights(), strict=True):
        np.testing.assert_allclose(mine, others, atol=1e-5)


@pytest.mark.slow
def test_x_may_be_a_frame_a_list_or_a_stream(tmp_path):
    x, y = drawn()
    frame = pd.DataFrame({"user": x["user"], "score": x["numbers"][:, 0]})
    user = keras.Input((1,), name="user", dtype="int64")
    score = keras.Input((1,), name="score")
    rows = keras.layers.Flatten()(keras.layers.Embedding(20, 2, "zeros")(user))
    joined = keras.layers.Concatenate()([rows, score])
    model = keras.Model([user, score], keras.layers.Dense(1, kernel_initializer="ones")(joined))
    model.compile("sgd", "mse")
    initial, losses = model.get_weights(), []
    arrays = [frame["user"].to_numpy(), frame["score"].to_numpy()]
    names = ("user", "score")
    batches = tf.data.Dataset.from_tensor_slices(
        (dict(zip(names, arrays, strict=True)), y["days"])
    ).batch(100)
    for number, given in enumerate([(frame, y["days"]), (arrays, y["days"]), (batches,)]):
        model.set_weights(initial)
        job_dir = str(tmp_path / str(number))
        options = {"verbose": False, "shuffle": False, "epochs": 2, "job_dir": job_dir}
        losses.append(tfps.fit(model, *given, **options).history["loss"])
    np.testing.assert_allclose(losses[1:], losses[:1] * 2, rtol=1e-6)


def test_what_cannot_be_meant_is_refused(tmp_path):
    x, y = drawn()
    fit = {"x": x["numbers"], "y": y["sold"], "job_dir": str(tmp_path)}
    for changes, said in (
        ({"job_dir": ""}, "job_dir= is missing"),
        ({"callbacks": keras.callbacks.EarlyStopping()}, "give a list of callbacks"),
        ({"validation_split": 0.5, "validation_data": (x, y)}, "exclude each other"),
        ({"epochs": 0}, "epochs=0 must be at least 1"),
    ):
        with pytest.raises(UserError, match=said):
            tfps.fit(one_output(), **{**fit, **changes})
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(UserError, match=r"call model.compile\("):
        tfps.fit(plain, **fit)
    raised = []

    def call():
        try:
            tfps.fit(one_output(), **fit)
        except UserError as error:
            raised.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "main thread alone" in raised[0]
