import socket
import threading

import pytest
from tfps.cluster.names import Names

from tests import peers
from tests.peers import Peer
from tfps.cluster import names as names_module
from tfps.cluster.liveness import Liveness, probe

WAIT = 20
REAL = socket.getaddrinfo


class NameService:
    """Answers lookups from a dict, counts them, and can hang."""

    def __init__(self):
        self.hosts = {}
        self.asked = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self, host, port, *args, **kwargs):
        self.asked.append(host)
        assert self.goes_on.wait(WAIT)
        if host not in self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        if isinstance(self.hosts[host], Exception):
            raise self.hosts[host]
        return REAL(self.hosts[host], port, *args, **kwargs)


@pytest.fixture
def service(monkeypatch):
    found = NameService()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setattr(names_module, "LEAST_SECONDS", 0.0)
    yield found
    found.goes_on.set()


def where(names, address):
    return [place[:2] for _, place in names.find(address, WAIT)]


def test_a_name_is_looked_up_once_however_often_it_is_needed(service):
    names = Names()
    service.hosts["job-ps-0"] = "127.0.0.2"
    for port in (1, 2, 2, 2):
        assert where(names, f"job-ps-0:{port}") == [("127.0.0.2", port)]
    assert service.asked == ["job-ps-0"]


def test_numbers_are_no_names(service):
    service.hosts |= {"127.0.0.1": "127.0.0.1", "::1": "::1"}
    names = Names()
    for address, host in {"127.0.0.1:7": "127.0.0.1", "[::1]:7": "::1"}.items():
        assert where(names, address) == [(host, 7)]
        names.doubt(address)
        assert where(names, address) == [(host, 7)]
    assert service.asked == ["127.0.0.1", "::1"]


def test_a_task_that_moved_is_found_when_its_old_place_is_in_doubt(service):
    names = Names()
    service.hosts["job-ps-0"] = "127.0.0.2"
    where(names, "job-ps-0:1")
    service.hosts["job-ps-0"] = "127.0.0.3"
    assert where(names, "job-ps-0:1") == [("127.0.0.2", 1)]
    names.doubt("job-ps-0:1")
    while where(names, "job-ps-0:1") != [("127.0.0.3", 1)]:
        pass
    assert service.asked == ["job-ps-0"] * 2


def test_doubts_ask_the_name_service_no_more_than_once_in_a_while(service, monkeypatch):
    monkeypatch.setattr(names_module, "LEAST_SECONDS", 3600.0)
    names = Names()
    service.hosts["job-ps-0"] = "127.0.0.2"
    for _ in range(100):
        where(names, "job-ps-0:1")
        names.doubt("job-ps-0:1")
        with pytest.raises(socket.gaierror):
            names.find("gone:1", WAIT)
        names.doubt("gone:1")
    assert service.asked == ["job-ps-0", "gone"]


def test_a_name_service_that_is_away_makes_no_known_task_unknown(service):
    names = Names()
    service.hosts["job-ps-0"] = "127.0.0.2"
    where(names, "job-ps-0:1")
    service.hosts["job-ps-0"] = socket.gaierror(socket.EAI_AGAIN, "later")
    names.doubt("job-ps-0:1")
    assert where(names, "job-ps-0:1") == [("127.0.0.2", 1)]
    while len(service.asked) < 2:
        pass
    assert where(names, "job-ps-0:1") == [("127.0.0.2", 1)]
    service.goes_on.clear()  # it hangs: what it said before holds
    names.doubt("job-ps-0:1")
    assert where(names, "job-ps-0:1") == [("127.0.0.2", 1)]


def test_a_lookup_that_hangs_has_a_limit_and_delays_no_other(service):
    names = Names()
    service.goes_on.clear()
    with pytest.raises(socket.gaierror, match=r"did not answer within 0 s"):
        names.find("job-ps-0:1", 0.05)
    service.goes_on.set()
    service.hosts["job-ps-0"] = "127.0.0.2"
    names.doubt("job-ps-0:1")
    assert where(names, "job-ps-0:1") == [("127.0.0.2", 1)]


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_what_can_be_no_name_is_an_unknown_one(host):
    with pytest.raises(socket.gaierror):
        Names().find(f"{host}:1", WAIT)


def test_probes_of_a_task_that_answers_ask_the_name_service_once(service):
    service.hosts["probed-0"] = "127.0.0.1"
    with Peer(peers.answer) as peer:
        address = peer.address.replace("127.0.0.1", "probed-0")
        assert [probe(address) for _ in range(5)] == 5 * [Liveness.ANSWERS]
    assert service.asked == ["probed-0"]
    assert probe(address) is Liveness.REFUSES
