"""`trainer.serve` as a program: how it begins, what it says, and how it ends."""

import json
import os
import signal
import socket

import pytest

from tests.loaded import client
from tests.trainer.serving.served_models import export_number
from tests.trainer.serving.server import Server, serving


@pytest.fixture(scope="module")
def job_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("job")
    export_number(directory / "export" / "2", 2)
    return directory


@pytest.mark.parametrize("part", ["", "export", "export/2", "export/2/"])
def test_a_job_its_export_and_a_version_may_be_named(job_dir, part):
    with serving(job_dir / part if part else job_dir) as server:
        status, content = server.ask({"instances": [0.0]})
        assert (status, content) == (200, {"predictions": [{"first": 2.0, "rows": 2.0}]})
        assert server.get("/v1/models/default")[1]["model_version_status"][0]["version"] == "2"
        server.wait_for("There is no authentication and no encryption")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_once_what_is_asked_is_answered(job_dir, number, code):
    server = Server(job_dir)
    body = b'{"instances": [0.0]}'
    head = (
        "POST /v1/models/default:predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
            connection.sendall(head.encode())
            assert connection.recv(25).startswith(b"HTTP/1.1 100 Continue")
            os.kill(server.process.pid, number)
            connection.sendall(body)
            answer = connection.makefile("rb").read()
        assert b" 200 OK" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["predictions"][0]["first"] == 2.0
    finally:
        code_found = server.end(number)
    assert code_found == code
    said = "".join(server.said)
    assert f"ended by {number.name}" in said
    assert "Traceback" not in said


def refused(*flags):
    """What it says of flags with which it does not begin."""
    done = client.run("trainer.serve", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_port_that_is_taken(job_dir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(f"--model={job_dir}", f"--port={port}")
    assert f"--port={port} of 127.0.0.1 is taken; name another (0 for any that is free)" in said


def test_what_cannot_be_served(job_dir, tmp_path):
    nothing = refused(f"--model={tmp_path}", "--port=0")
    assert f"--model={tmp_path} has no version of an exported model" in nothing
    assert "--address=192.0.2.1 cannot be bound" in refused(
        f"--model={job_dir}", "--address=192.0.2.1", "--port=0"
    )
    assert "--max_body=16" in refused(f"--model={job_dir}", "--max_body=16", "--port=0")
    assert "--model_name is empty" in refused(f"--model={job_dir}", "--model_name=", "--port=0")
    assert "--model" in refused()


def test_other_machines_are_warned_of(job_dir):
    with serving(job_dir, "--address=0.0.0.0", "--model_name=a b") as server:
        server.wait_for("WARNING: there is no authentication and no encryption")
        # Whatever name it has there is its own, but a page of another one is not.
        path = "/v1/models/a%20b:predict"
        asked = {"instances": [0.0]}
        assert server.ask(asked, path, {"Host": "served.example:80"})[0] == 200
        headers = {"Host": "served.example", "Origin": "http://other.example"}
        assert server.ask(asked, path, headers)[0] == 403
