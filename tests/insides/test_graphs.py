"""How TensorFlow keeps variables and runs graphs, where tfps relies on it."""

import itertools
import os
import pathlib
import threading

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pool, message_factory

from tfps.worker.local_copy import LocalRows

CPU = "/device:CPU:0"
SECONDS = 60  # for what does not wait unless TensorFlow has changed


class Memory:
    """Holds a tensor's memory, and says where it is."""

    def __init__(self, tensor):
        self._capsule = tf.experimental.dlpack.to_dlpack(tensor)
        self.values = np.from_dlpack(self)

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0

    @property
    def address(self):
        return self.values.ctypes.data


def in_threads(function, count):
    """Calls a function in threads; returns whether all have ended in time."""
    threads = [threading.Thread(target=function, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return not any(thread.is_alive() for thread in threads)


def test_a_read_shares_the_variables_memory():
    variable = tf.Variable(tf.zeros([1000]))
    first, again = Memory(variable.read_value()), Memory(variable.read_value())
    assert first.address == again.address


@pytest.mark.parametrize("write", ["assign_add", "kernel"])
def test_a_write_leaves_memory_alone_that_is_in_use(write):
    variable = tf.Variable(tf.zeros([1000]))
    read = Memory(variable.read_value())
    if write == "assign_add":
        variable.assign_add(tf.ones([1000]))
    else:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle, alpha=-1.0, delta=tf.ones([1000])
        )
    assert not read.values.any()
    assert Memory(variable.read_value()).address != read.address
    assert variable.numpy().all()


def test_an_assigned_variable_shares_memory():
    """A snapshot: taken without a copy; the first write of rows gives the other new memory."""
    variable = tf.Variable(tf.zeros([1000, 1]))
    snapshot = tf.Variable(tf.zeros([0]), shape=tf.TensorShape(None))

    @tf.function(autograph=False)
    def take():
        with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=variable.handle)]):
            snapshot.assign(variable.read_value(), read_value=False)

    take()
    taken = Memory(snapshot.read_value())
    assert taken.address == Memory(variable.read_value()).address
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=[3], updates=[[1.0]])
    assert not taken.values.any()
    assert variable.numpy().sum() == 1
    snapshot.assign(tf.zeros([0]))  # of any shape


def test_reads_of_a_variable_written_by_rows():
    """They are copies until `DisableCopyOnRead`."""
    variable = tf.Variable(tf.zeros([1000, 1]))
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=[3], updates=[[1.0]])
    first, again = Memory(variable.read_value()), Memory(variable.read_value())
    assert first.address != again.address
    tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
    first, again = Memory(variable.read_value()), Memory(variable.read_value())
    assert first.address == again.address


def test_parts_of_a_tensor_share_its_memory():
    """Slices of one dimension do: a save writes chunks without a copy."""
    variable = tf.Variable(tf.zeros([1024, 4]))

    @tf.function(autograph=False)
    def parts():
        flat = tf.reshape(variable.read_value(), [-1])
        return tf.reshape(flat[2048:3072], [256, 4]), variable.read_value()

    part, whole = map(Memory, parts())
    assert part.address == whole.address + 2048 * 4


def test_fused_kernels_lose_no_update():
    variable, slot = tf.Variable(tf.zeros([5000])), tf.Variable(tf.zeros([5000]))

    def push():
        for _ in range(200):
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=variable.handle,
                accum=slot.handle,
                lr=1.0,
                grad=-tf.ones([5000]),
                momentum=1.0,
            )

    assert in_threads(push, 2)
    assert set(slot.numpy().tolist()) == {400.0}
    assert set(variable.numpy().tolist()) == {400.0 * 401 / 2}


def test_a_variable_of_one_execution():
    """Each execution of a function makes one of its own, which is freed when it has ended."""

    @tf.function(autograph=False)
    def add_one(rows, arrive, leave):
        local = LocalRows(rows)
        with tf.control_dependencies([local.all()]):  # both executions are here at the same time
            arrived = tf.raw_ops.QueueEnqueueV2(handle=arrive, components=[1])
        with tf.control_dependencies([arrived]):
            left = tf.raw_ops.QueueDequeueV2(handle=leave, component_types=[tf.int32])
        with tf.control_dependencies(left):
            local.write(tf.range(tf.shape(rows)[0]), local.all() + 1.0)
            return local.all()[0, 0]

    queues = [tf.queue.FIFOQueue(2, [tf.int32]) for _ in range(2)]
    one, other = (queue.queue_ref for queue in queues)
    todo, found = [], []

    def run():
        value, arrive, leave = todo.pop()
        found.append(float(add_one(tf.fill([1 << 18, 1], value), arrive, leave)))

    def run_both():
        todo.extend([(1.0, one, other), (10.0, other, one)])
        assert in_threads(run, 2)

    run_both()
    before = _resident_bytes()
    for _ in range(100):  # two variables of a MiB each
        run_both()
    assert sorted(set(found)) == [2.0, 11.0]
    assert _resident_bytes() - before < 100 << 20


def test_a_failed_step_frees_its_mutex():
    mutex = tf.raw_ops.MutexV2(shared_name="canary")

    @tf.function(autograph=False)
    def step(good):
        lock = tf.raw_ops.MutexLock(mutex=mutex)
        with tf.control_dependencies([lock]):
            check = tf.debugging.Assert(good, ["bad"])
        with tf.control_dependencies([check]):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(False))
    assert in_threads(lambda: step(tf.constant(True)), 1)


def test_order_of_operations_with_state():
    """Those of one resource, and those without any, run in the order of the program."""
    mutexes = [tf.raw_ops.MutexV2(shared_name=name) for name in ("one", "another")]
    variables = [tf.Variable(0.0), tf.Variable(0.0)]

    @tf.function(autograph=False)
    def steps():
        for _ in range(2):
            for mutex, variable in zip(mutexes, variables, strict=True):
                lock = tf.raw_ops.MutexLock(mutex=mutex)
                with tf.control_dependencies([lock]):
                    write = variable.assign_add(1.0, read_value=False)
                with tf.control_dependencies([write]):
                    tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    def of_kind(kind):
        operations = steps.get_concrete_function().graph.get_operations()
        return [op for op in operations if op.type == kind]

    freed = of_kind("ConsumeMutexLock")
    for before, after in itertools.pairwise(freed):
        assert before in after.control_inputs
    first, other, again, _ = of_kind("MutexLock")
    assert first in again.control_inputs
    assert first not in other.control_inputs
    writes = of_kind("AssignAddVariableOp")
    assert writes[0] in writes[2].control_inputs


def test_no_order_in_a_wrapped_function():
    """There, operations with state have no order but the one that they are given."""
    queue = tf.queue.FIFOQueue(1, [tf.int32], shapes=[[]])

    def take_and_put():
        taken = queue.dequeue()
        with tf.control_dependencies([queue.enqueue(1)]):
            return tf.identity(taken)

    assert in_threads(tf.compat.v1.wrap_function(take_and_put, []), 1)


def test_pruning_of_what_nothing_needs():
    """What depends on made-up rows is not computed; what has state is."""
    count = tf.Variable(0)

    @tf.function(autograph=False)
    def steps():
        tf.strings.to_number("no number")
        count.assign_add(1)

    steps()
    assert count.numpy() == 1


def test_lowering_of_loops():
    """A loop's body can span tasks only where it is no function of its own."""

    @tf.function(autograph=False)
    def count():
        return tf.while_loop(lambda k: k < 3, lambda k: (k + 1,), [0])

    graph = count.get_concrete_function().graph
    [loop] = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    assert loop.get_attr("_lower_using_switch_merge")


def test_handles_of_queues_are_tensors():
    queues = [tf.queue.FIFOQueue(10, [tf.int64], shapes=[[]]) for _ in range(3)]

    @tf.function(autograph=False)
    def through(index):
        handle = tf.gather(tf.stack([queue.queue_ref for queue in queues]), index)
        added = tf.raw_ops.QueueEnqueueV2(handle=handle, components=[tf.constant(7, tf.int64)])
        with tf.control_dependencies([added]):
            return tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])[0]

    assert through(tf.constant(1)).numpy() == 7


def test_waiting_for_a_queue_holds_no_thread():
    """More wait here than TensorFlow has threads."""
    queues = [tf.queue.FIFOQueue(10, [tf.int64], shapes=[[]]) for _ in range(100)]

    @tf.function(autograph=False)
    def wait():
        return tf.add_n([queue.dequeue() for queue in queues])

    @tf.function(autograph=False)
    def fill():
        for queue in queues:
            queue.enqueue(tf.constant(1, tf.int64))

    sums = []
    waiting = threading.Thread(target=lambda: sums.append(wait().numpy()), daemon=True)
    waiting.start()
    fill()
    waiting.join(SECONDS)
    assert sums == [100]


def test_batchers_of_one_name_are_one():
    """Used by tests alone: steps that take a set time."""
    # Calls of two functions meet in one batch; else each would wait for as long as is set.
    functions = []
    for _ in range(2):
        wait = tf.nondifferentiable_batch_function(1, 2, 4 * SECONDS * 1_000_000)

        @tf.function(autograph=False)
        def call(x, wait=wait):
            with tf.name_scope("shared_by_name"):
                return wait(tf.identity)(x)

        functions.append(call.get_concrete_function(tf.TensorSpec([1])))
    calls = iter(functions)
    assert in_threads(lambda: next(calls)(tf.ones([1])), 2)


def test_hashes_stay_the_same():
    """Rows of strings, and of ids beyond a table: a model finds them after an upgrade."""
    hashed = tf.strings.to_hash_bucket_fast(["", "movie", "日本"], 1 << 40)
    assert hashed.numpy().tolist() == [254201053263, 562022977105, 453951835083]


def test_shuffles_stay_the_same():
    """The order of an epoch's records: a run may continue in its middle."""
    values = tf.random.experimental.stateless_shuffle(tf.range(8), tf.constant([3, 5], tf.int64))
    assert values.numpy().tolist() == [3, 2, 1, 7, 6, 5, 0, 4]


def test_content_of_a_lookup_table_given_twice():
    @tf.function(autograph=False)
    def find(key):
        handle = tf.raw_ops.HashTableV2(
            key_dtype=tf.int64, value_dtype=tf.int64, shared_name="canary"
        )
        keys, values = tf.constant([5, 7], tf.int64), tf.constant([1, 2], tf.int64)
        filled = tf.raw_ops.InitializeTableV2(table_handle=handle, keys=keys, values=values)
        with tf.control_dependencies([filled]):
            return tf.raw_ops.LookupTableFindV2(
                table_handle=handle, keys=key, default_value=tf.constant(0, tf.int64)
            )

    for _ in range(2):
        assert find(tf.constant([7, 9], tf.int64)).numpy().tolist() == [2, 0]


def test_message_of_a_saved_model(tmp_path):
    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([], name="x")])
    tf.saved_model.save(module, str(tmp_path), signatures=module.double)
    described = descriptor_pool.Default().FindMessageTypeByName("tensorflow.SavedModel")
    content = (tmp_path / "saved_model.pb").read_bytes()
    [graph] = message_factory.GetMessageClass(described).FromString(content).meta_graphs
    assert list(graph.signature_def["serving_default"].inputs) == ["x"]


def _new_hash_table(name):
    """With -1 and -2 for keys of its own; by its handle."""
    return tf.raw_ops.MutableDenseHashTableV2(
        empty_key=tf.constant(-1, tf.int64),
        deleted_key=tf.constant(-2, tf.int64),
        value_dtype=tf.int64,
        shared_name=name,
        initial_num_buckets=8,
    )


def _content(table):
    return tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=tf.int64, Tvalues=tf.int64)


@pytest.mark.parametrize("filled", [False, True])
def test_what_is_imported_are_the_buckets_of_a_hash_table(filled):
    """As many as there are keys `[n, 1]`, all of them empty: what was in it before is gone."""
    table = _new_hash_table(f"imported-{filled}")
    if filled:
        keys = tf.range(1000, dtype=tf.int64)
        tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=keys, values=keys)

    @tf.function(autograph=False)
    def resize(buckets):
        keys = tf.fill([buckets, 1], tf.constant(-1, tf.int64))
        # A graph wants vectors; the kernel wants what it exports.
        keys, values = (
            tf.raw_ops.PlaceholderWithDefault(input=each, shape=None)
            for each in (keys, tf.zeros_like(keys))
        )
        tf.raw_ops.LookupTableImportV2(table_handle=table, keys=keys, values=values)

    for buckets in (1 << 12, 1 << 6):
        resize(tf.constant(buckets, tf.int64))
        assert tf.size(_content(table)[0]) == buckets
        assert tf.raw_ops.LookupTableSizeV2(table_handle=table) == 0
    few = tf.range(30, dtype=tf.int64)
    tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=few, values=2 * few)
    assert tf.size(_content(table)[0]) == 1 << 6
    found = tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=few, default_value=tf.constant(-7, tf.int64)
    )
    assert (found.numpy() == 2 * few.numpy()).all()


def test_what_is_exported_is_the_memory_of_a_hash_table():
    """No copy: looking at some buckets of many costs what those cost."""
    table = _new_hash_table("exported")
    keys = tf.range(1000, dtype=tf.int64)
    tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=keys, values=keys)
    first, again = ([Memory(each) for each in _content(table)] for _ in range(2))
    assert [each.address for each in first] == [each.address for each in again]
    assert sorted(first[0].values[first[0].values >= 0].ravel()) == keys.numpy().tolist()
    assert set(first[0].values.ravel().tolist()) == {-1, *keys.numpy().tolist()}
    tf.raw_ops.LookupTableRemoveV2(table_handle=table, keys=keys[:10])
    # A mark stays where a key was, which counts as a bucket that is used.
    assert (Memory(_content(table)[0]).values == -2).sum() == 10


def _resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_memory_that_is_empty_is_taken_as_it_is_written():
    """And the first write of rows makes no copy, if a function has assigned it.

    Where TensorFlow uses oneDNN, by default on newer x86 processors, its allocator keeps 8 bytes
    for each 256 of a large block: of two blocks of 1 GiB, 64 MiB.
    """
    rows, megabyte = 1 << 20, 1 << 20
    shape = [rows, 256]  # 1 GiB of float32

    def empty():
        return tf.raw_ops.Empty(shape=shape, dtype=tf.float32, init=False)

    before = _resident_bytes()
    variable = tf.Variable(empty(), trainable=False)
    assert variable.shape == shape

    @tf.function(autograph=False)
    def reserve():
        variable.assign(empty(), read_value=False)

    reserve()
    assert _resident_bytes() - before < 160 * megabyte
    for row in range(0, rows, rows // 64):
        tf.raw_ops.ResourceScatterUpdate(
            resource=variable.handle, indices=[row], updates=tf.ones([1, 256])
        )
    assert _resident_bytes() - before < 224 * megabyte
    found = tf.raw_ops.ResourceGather(
        resource=variable.handle, indices=[0, rows // 64], dtype=tf.float32
    )
    assert (found.numpy() == 1).all()


def test_captures_of_a_loaded_function(tmp_path):
    """Functions of a SavedModel that was loaded look up in another table, of another kind."""
    keys, values = tf.constant([1, 2], tf.int64), tf.constant([10, 20], tf.int64)
    module = tf.Module()
    filled = tf.lookup.KeyValueTensorInitializer(keys, values)
    module.resources = [tf.lookup.StaticHashTable(filled, -1)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def find(asked):
        return {"found": module.resources[0].lookup(asked)}

    module.functions = [find]
    tf.saved_model.save(module, tmp_path, signatures={"find": find.get_concrete_function()})
    loaded = tf.saved_model.load(tmp_path)
    [table] = loaded.resources
    other = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    other.insert(tf.constant([2, 3], tf.int64), tf.constant([200, 300], tf.int64))
    for function in (loaded.signatures["find"], *loaded.functions[0].concrete_functions):
        captured = [
            other.resource_handle if each is table.resource_handle else each
            for each in function.captured_inputs
        ]
        function.set_external_captures(captured)
    asked = tf.constant([1, 2, 3], tf.int64)
    for found in (loaded.signatures["find"](asked), loaded.functions[0](asked)):
        assert found["found"].numpy().tolist() == [-1, 200, 300]
