import time

import pytest
import tensorflow as tf

from tests import peers
from tests.peers import Peer
from tfps.cluster.liveness import Liveness, probe


def test_a_tensorflow_server_answers_whoever_asks_how_often():
    server = tf.distribute.Server.create_local_server()
    address = server.target.removeprefix("grpc://")
    assert [probe(address) for _ in range(50)] == 50 * [Liveness.ANSWERS]


@pytest.mark.parametrize(
    ("act", "seen"),
    [
        (peers.answer, Liveness.ANSWERS),
        (peers.stay_silent, Liveness.SILENT),
        (peers.speak_http1, Liveness.FOREIGN),
        (peers.hang_up, Liveness.FOREIGN),
    ],
)
def test_what_listens_is_told_apart(act, seen):
    with Peer(act) as peer:
        began = time.monotonic()
        assert probe(peer.address, limit_seconds=0.5) is seen
        assert time.monotonic() - began < 30


def test_what_does_not_listen_is_told_apart():
    assert probe(peers.refusing_address()) is Liveness.REFUSES
    assert probe("no-such-host.invalid:1") is Liveness.UNKNOWN_HOST


@pytest.mark.parametrize("seen", Liveness)
def test_there_is_something_to_do_about_each(seen):
    assert seen.what_to_do
