"""What tfps relies on in TensorFlow's profiler; docs/tensorflow_insides.md."""

import pathlib
import threading

import tensorflow as tf

from tfps.profiling import trace
from tfps.profiling.scopes import PULL


def test_a_server_is_traced_at_its_port(tmp_path: pathlib.Path) -> None:
    """Its operations are named by their scopes, and its file by its address."""
    config = tf.compat.v1.ConfigProto()
    config.experimental.disable_thread_spinning = True
    server = tf.distribute.Server.create_local_server(config)
    address = server.target.removeprefix("grpc://")

    @tf.function(autograph=False)
    def multiplied(x: tf.Tensor) -> tf.Tensor:
        def body(count: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.name_scope(PULL):
                return count + 1, tf.matmul(x, x)

        return tf.while_loop(lambda count, _: count < 10, body, (0, x))[1]

    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            multiplied(tf.zeros([100, 100]))

    multiplied(tf.zeros([100, 100]))
    thread = threading.Thread(target=work)
    thread.start()
    try:
        tf.profiler.experimental.client.trace(f"grpc://{address}", str(tmp_path), 500)
    finally:
        is_over.set()
        thread.join()
    name = f"{address.replace(':', '_')}.xplane.pb"
    [path] = tmp_path.glob(f"plugins/profile/*/{name}")
    names = {event.name for thread in trace.read(str(path)).threads for event in thread}
    assert any(
        name.startswith("while/") and PULL in name and name.endswith("MatMul") for name in names
    )
