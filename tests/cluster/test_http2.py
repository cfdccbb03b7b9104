import select
import time

import pytest
from tfps.cluster.http2 import Frame, Http2Connection, NotHttp2Error

from tests import peers
from tests.peers import Peer
from tfps.cluster import http2

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def sending(data):
    def act(connection):
        connection.sendall(data)
        return True

    return act


def test_frames_are_read_one_by_one_however_they_arrive():
    ping = bytes((0, 0, 8, 6, 1, 0, 0, 0, 0)) + b"tfpsping"
    window = bytes((0, 0, 4, 8, 0, 0x80, 0, 0, 3)) + b"abcd"
    act = sending(SETTINGS + ping + window)
    with Peer(act) as peer, Http2Connection.connect(peer.address, 5) as connection:
        connection.ask()
        assert connection.receive() == Frame(http2.PING, http2.ACK, 0, b"tfpsping")
        assert connection.receive() == Frame(8, 0, 3, b"abcd")  # the stream's first bit is none


def test_what_has_arrived_is_read_though_the_time_is_up():
    """It may be this process that was stopped, not the one that was asked."""
    with Peer(sending(SETTINGS)) as peer, Http2Connection.connect(peer.address, 60) as connection:
        assert select.select([connection._socket], [], [], 60)[0]
        connection._deadline = time.monotonic()
        connection.ask()
        with pytest.raises(TimeoutError):
            connection.receive()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        bytes((0, 0, 0, 6, 0, 0, 0, 0, 0)),  # a frame, but not the first of a server
        SETTINGS[:5],
    ],
)
def test_what_is_no_http2_server_is_refused(data):
    def act(connection):
        connection.sendall(data)

    with (
        Peer(act) as peer,
        Http2Connection.connect(peer.address, 5) as connection,
        pytest.raises(NotHttp2Error),
    ):
        connection.ask()


def test_a_server_that_says_good_bye_is_refused():
    goodbye = bytes((0, 0, 8, 7, 0, 0, 0, 0, 0)) + bytes(8)
    act = sending(SETTINGS + goodbye)
    with Peer(act) as peer, Http2Connection.connect(peer.address, 5) as connection:
        connection.ask()
        with pytest.raises(NotHttp2Error):
            connection.receive()


def test_a_silent_peer_costs_no_more_than_the_limit():
    with Peer(peers.stay_silent) as peer, Http2Connection.connect(peer.address, 0.2) as connection:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            connection.ask()
        assert time.monotonic() - began < 30
