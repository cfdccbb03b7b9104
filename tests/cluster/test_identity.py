import pytest
import tensorflow as tf

from tests import peers
from tests.peers import Peer
from tfps.cluster.liveness import ServerIdentity
from tfps.job_dir.task_name import TaskName


def serve(job, index):
    """A TensorFlow server, as its task would start it; returns its address."""
    address = peers.free_address()
    spec = tf.train.ClusterSpec({job: {index: address}})
    server = tf.distribute.Server(spec, job_name=job, task_index=index)
    return server.target.removeprefix("grpc://")


def test_a_server_says_which_task_it_is():
    """Fails when TensorFlow's own protocol, of which this is a part, changes."""
    first, other = (ServerIdentity.ask(serve("worker", 12), 20) for _ in range(2))
    assert first.task == other.task == TaskName("worker", 12)
    assert first.incarnation != other.incarnation
    assert min(first.incarnation, other.incarnation) > 0


def test_a_server_says_the_same_each_time():
    address = serve("ps", 0)
    first, again = ServerIdentity.ask(address, 20), ServerIdentity.ask(address, 20)
    assert first == again
    assert first.task == TaskName("ps", 0)


@pytest.mark.parametrize("act", [peers.answer, peers.stay_silent, peers.speak_http1])
def test_others_are_none(act):
    with Peer(act) as peer:
        assert ServerIdentity.ask(peer.address, 0.3) is None


def test_nobody_is_none():
    assert ServerIdentity.ask(peers.refusing_address(), 5) is None
