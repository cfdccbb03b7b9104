"""What cannot be used ends at once, with one message that says what, where and how to fix it."""

import concurrent.futures
import dataclasses
import pathlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from bad_input import Case, Place
from bad_inputs import CASES, shard_corrupt, shard_of_another_schema, without
from cluster_process import Program, local_cluster, trainer_flags
from datasets_on_disk import Datasets

LIMIT_SECONDS = 60  # from the start of the process to its end, on a busy machine
AT_ONCE = 2


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        code: Its exit code.
        lines: What it printed.
        errors: Those of its lines that tell of an error.
        seconds: How long it ran.
    """

    code: int
    lines: list[str]
    errors: list[str]
    seconds: float


def run(case: Case, place: Place) -> Ended:
    flags = case.flags(place)
    environ = {k: x.replace("UNSERVED", place.unserved) for k, x in case.environ.items()}
    began = time.monotonic()
    with Program(*flags, environ=environ) as program:
        code = program.finish()
        return Ended(code, program.lines, program.errors, time.monotonic() - began)


@pytest.fixture(name="unserved", scope="module")
def unserved_fixture() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(name="finished_job", scope="module")
def finished_job_fixture(
    datasets: Datasets, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    job_dir = tmp_path_factory.mktemp("finished") / "job"
    with Program(*trainer_flags(datasets.two_shards, job_dir)) as program:
        assert program.finish() == 0, program.text
    return job_dir


Running = Mapping[str, tuple[Place, concurrent.futures.Future[Ended]]]


@pytest.fixture(name="running", scope="module")
def running_fixture(
    request: pytest.FixtureRequest,
    datasets: Datasets,
    finished_job: pathlib.Path,
    unserved: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    """Runs the cases that were selected, a few at a time: most of their time is loading."""
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if getattr(item, "originalname", "") == test_one_clear_message.__name__
    ]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = {}
        for name in names:
            path = tmp_path_factory.mktemp("bad")
            place = Place(path, datasets, finished_job, unserved)
            running[name] = place, pool.submit(run, CASES[name], place)
        yield running
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_one_clear_message(running: Running, name: str) -> None:
    place, future = running[name]
    ended = future.result()
    text = "\n".join(ended.lines)
    assert ended.code == 2, text
    assert ended.seconds < LIMIT_SECONDS
    [error] = ended.errors
    assert error.startswith("error: "), text
    assert ended.lines[-1] == error, text  # nothing comes after it: the message is one line
    for part in CASES[name].message:
        assert part.format(path=place.path, unserved=place.unserved) in error


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (without("data.train"), "--data.train is missing"),
        pytest.param(shard_corrupt, ") does not fit its checksum; ", marks=pytest.mark.slow),
        pytest.param(
            shard_of_another_schema,
            "record 0 (byte 0) holds 3 values in 'numbers', not 4",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_cluster_ends_with_the_chiefs_message(
    make: Callable[[Place], list[str]],
    part: str,
    datasets: Datasets,
    unserved: str,
    tmp_path: pathlib.Path,
) -> None:
    flags = make(Place(tmp_path, datasets, tmp_path, unserved))
    began = time.monotonic()
    with local_cluster(1, 1, flags) as program:
        assert program.finish() == 2, program.text
    assert time.monotonic() - began < LIMIT_SECONDS
    [error] = program.errors
    assert error.startswith("[chief] error: ")
    assert part in error
    own = [line for line in program.lines if line.startswith(("[chief]", "[launcher]"))]
    assert own[-1] == "[launcher] chief ended with exit code 2"  # a server may still say something
