"""docs/serving.md: every request, client and error of the page, sent to a real server."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.loaded import client
from tests.project import ROOT
from tests.trainer.serving.served_models import Hand, brightness
from tests.trainer.serving.server import serving
from tfps.data import examples
from tfps.data.feature import Feature

PAGE = (ROOT / "docs/serving.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
URL = "http://localhost:8501/v1/models/default:predict"
SHOP = (
    Feature("age", "float32"),
    Feature("last", "int64", (3,), 1000),
    Feature("tags", "int64", (None,), 50),
    Feature("town", "string"),
)
PHOTO = (Feature("photo", "string"),)
RECORD = {"age": 42.0, "last": [5, 3, 8], "tags": [7, 2], "town": b"Ulm"}
SCORE, OTHER_SCORE = 0.2734375, 0.111328125  # of the page's two records


def score(values):
    ids = [values["last"], values["tags"]]
    sums = [tf.cast(tf.reduce_sum(each, axis=1), tf.float32) for each in ids]
    length = tf.cast(tf.strings.length(values["town"]), tf.float32)
    total = (values["age"] + sums[0] + sums[1] + length) / 256
    return {"score": total, "topics": tf.stack([2 * total, 3 * total], axis=1)}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    job_dir = tmp_path_factory.mktemp("shop")
    Hand(SHOP, score).export(job_dir / "export" / "1", SHOP)
    with serving(job_dir) as server:
        yield server


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    directory = tmp_path_factory.mktemp("photos") / "1"
    Hand(PHOTO, lambda values: brightness({"picture": values["photo"]})).export(directory, PHOTO)
    with serving(directory) as server:
        yield server


def requests_and_answers():
    """Requests in JSON, each with the answer that follows it, or that of the one before."""
    texts = [text for language, text in BLOCKS if language == "json"]
    answers = [re.match(r'\{\s*"(predictions|outputs)"', text) is not None for text in texts]
    return [
        (text, texts[k + 1].rstrip("\n") if k + 1 < len(texts) and answers[k + 1] else None)
        for k, text in enumerate(texts)
        if not answers[k]
    ]


def test_the_page_has_requests_of_every_form():
    assert len(requests_and_answers()) == 5
    assert [language for language, _ in BLOCKS].count("python") == 3


@pytest.mark.parametrize(("request_text", "answer"), requests_and_answers())
def test_a_request_is_answered_as_the_page_says(request, request_text, answer):
    is_photo = "iVBOR" in request_text
    server = request.getfixturevalue("photos" if is_photo else "shop")
    status, _, text = server.raw("POST", "/v1/models/default:predict", request_text.encode())
    assert status == 200, text
    if answer:
        assert json.loads(text) == json.loads(answer)
    elif "serving_examples" in request_text:
        assert json.loads(text)["predictions"][0]["score"] == SCORE
    else:
        assert json.loads(text)["outputs"]["score"] == [SCORE, OTHER_SCORE]


def test_the_other_ways_to_ask_for_one_feature(photos):
    request_text = next(text for text, _ in requests_and_answers() if "iVBOR" in text)
    [photo] = json.loads(request_text)["instances"]
    expected = photos.ask({"instances": [photo]})[1]["predictions"]
    assert photos.ask({"inputs": [photo]}) == (200, {"outputs": expected})
    assert photos.ask({"instances": [{"photo": photo}]})[1]["predictions"] == expected


COMMANDS = [text for language, text in BLOCKS if language == "sh" and "curl" in text]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl: apt-get install curl")
@pytest.mark.parametrize("command", COMMANDS)
def test_curl(request, command, tmp_path):
    is_photo = "photo.png" in command
    server = request.getfixturevalue("photos" if is_photo else "shop")
    white = tf.fill([2, 2, 3], tf.constant(255, tf.uint8))
    (tmp_path / "photo.png").write_bytes(tf.io.encode_png(white).numpy())
    assert URL in command
    command = command.replace("localhost:8501", f"localhost:{server.port}").replace(
        "curl", "curl -sS"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    predictions = json.loads(done.stdout)["predictions"]
    assert predictions == (
        [[1.0] * 3] if is_photo else [{"score": SCORE, "topics": [0.546875, 0.8203125]}]
    )


PROGRAMS = [text for language, text in BLOCKS if language == "python"]
PRINTED = {
    "TFRecordDataset": f"{SCORE}\n" * 2,
    "import requests": f"{SCORE} [0.546875, 0.8203125]\n",
    "urllib.request": f"[{SCORE}, {OTHER_SCORE}]\n",
}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, marks=[pytest.mark.slow] if "tensorflow" in program else [])
        for program in PROGRAMS
    ],
)
def test_clients_in_python(shop, program, tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "part.tfrecord")) as writer:
        for _ in range(2):
            writer.write(examples.encode(RECORD, SHOP))
    assert URL in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("localhost:8501", f"localhost:{shop.port}")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    [printed] = [text for sign, text in PRINTED.items() if sign in program][:1]
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


ERRORS = re.findall(r"^\| `(\{.*)` \| (\d+) \| `(.*)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("body", "status", "error"), ERRORS)
def test_errors(shop, body, status, error):
    assert shop.ask(body.encode()) == (int(status), {"error": error})


def test_the_page_has_errors():
    assert len(ERRORS) == 8


def test_every_flag_is_explained_with_its_default():
    described = re.split(r"^  --", client.run("trainer.serve", "--help").stdout, flags=re.MULTILINE)
    defaults = {}
    for text in described[1:]:
        default = re.search(r"\(default: '(.*)'\)", text)
        defaults[text.partition(":")[0]] = default[1].removesuffix(".0") if default else ""
    rows = re.findall(r"^\| (`--.*?`) \| (.*?) \|", PAGE, re.MULTILINE)
    told = {
        name: value.strip("`")
        for names, values in rows
        for name, value in zip(re.findall(r"--(\w+)", names), values.split(", "), strict=True)
    }
    assert told == {name: value for name, value in defaults.items() if name != "model"}
