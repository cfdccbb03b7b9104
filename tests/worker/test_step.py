import os
import re
import subprocess
import sys

import pytest

DEVICES = 3
ONE_NAMED = "from here on on one named device"


@pytest.mark.slow
def test_a_batch_split_over_devices_is_trained_as_a_whole_one():
    """In a process of its own: TensorFlow's devices are fixed once it has started."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.worker.test_step"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    split, _, named = run.stderr.partition(ONE_NAMED)
    placed = r"MatMul: \(\w*MatMul\): \S*device:CPU:(\d)"
    assert set(re.findall(placed, split)) == {"0", "1", "2"}
    # What finds the rows is a forward pass too, of which only the ids are computed.
    computed = rf"\] (?:tfps_compute/|functional_1/)\S*{placed}"
    assert set(re.findall(computed, named)) == {"2"}


def _compare():
    import numpy as np
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    configuration = [tf.config.LogicalDeviceConfiguration()] * DEVICES
    tf.config.set_logical_device_configuration(cpu, configuration)
    tf.debugging.set_log_device_placement(True)
    from configs.criteo import Criteo
    from tfps.model.stateless_model import StatelessModel
    from tfps.optimizers.rules import Rules
    from tfps.store.parameter_store import ParameterStore
    from tfps.worker.step import Step

    task = Criteo(rows_per_table=50, dim=4, mlp=(8,))
    names = [f"/device:CPU:{k}" for k in range(DEVICES)]
    stores, steps = [], []
    for devices in ([""], names):
        model = StatelessModel(task, 0)
        stores.append(ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * 2, 0))
        step = Step(task, model, stores[-1], devices=devices)
        steps.append(
            tf.function(
                lambda features, labels, seed, step=step: step.train(
                    step.pull(features, labels), seed
                ),
                autograph=False,
                reduce_retracing=True,
            )
        )
    generator = np.random.default_rng(0)
    for number, size in enumerate((30, 31, 7, 2, 1)):  # the last leave devices without records
        features = {
            "integers": tf.constant(generator.normal(size=(size, 13)).astype("f4")),
            "categoricals": tf.constant(generator.integers(0, 50, (size, 26))),
        }
        labels = {"label": tf.constant(generator.integers(0, 2, size))}
        losses = [
            float(step(features, labels, tf.constant([0, number << 32], tf.int64)))
            for step in steps
        ]
        assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    for ours, whole in zip(stores[1].read_dense(), stores[0].read_dense(), strict=True):
        np.testing.assert_allclose(ours, whole, atol=1e-5)
    for table in (0, 25):
        np.testing.assert_allclose(
            stores[1].read_table(table), stores[0].read_table(table), atol=1e-5
        )
    print(ONE_NAMED, file=sys.stderr, flush=True)
    step = Step(task, model, stores[-1], devices=names[2:])
    for closure in (
        lambda: step.train(step.pull(features, labels), tf.zeros([2], tf.int64)),
        lambda: step.predict(features, labels),
    ):
        tf.function(closure, autograph=False)()


if __name__ == "__main__":
    _compare()
