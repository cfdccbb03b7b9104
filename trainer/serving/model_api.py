"""TensorFlow Serving's REST requests to a model: which there are, and what each is answered."""

import dataclasses
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format

from trainer.serving import answer_text, form, json_body
from trainer.serving.model_versions import ModelVersions
from trainer.serving.question import read_question
from trainer.serving.refusal import RefusedError, listed, unfit
from trainer.serving.served_version import ServedVersion

# As TensorFlow Serving reads paths.
_MODEL = (
    r"(?i:/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
)
_STATUS = re.compile(_MODEL + ")")
_METADATA = re.compile(_MODEL + "/metadata)")
_VERB = re.compile(_MODEL + ":(?P<verb>predict|classify|regress))")
_MOST_DIGITS = 18  # of a version, which is an int64


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a request is answered.

    Attributes:
        version: Of the model that was asked; 0 for none.
        policy: Its Content-Security-Policy; empty for none.
    """

    content: bytes
    kind: str = "application/json"
    version: int = 0
    policy: str = ""


class ModelApi:
    """Answers requests to one model."""

    def __init__(
        self,
        versions: ModelVersions,
        name: str,
        max_batch: int,
        predictions_at_once: int,
        wait_seconds: float,
    ):
        self._versions = versions
        self._name = name
        self._max_batch = max_batch
        self._places = threading.BoundedSemaphore(predictions_at_once)
        self._wait_seconds = wait_seconds

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """What a request is answered."""
        answers: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str], bytes], Answer]], ...]
        answers = (
            ("GET", re.compile("/"), self._page),
            ("GET", _STATUS, self._status),
            ("GET", _METADATA, self._metadata),
            ("POST", _VERB, self._predict),
        )
        for wanted, pattern, give in answers:
            match = pattern.fullmatch(path)
            if match and wanted == ("GET" if method == "HEAD" else method):
                return give(match, body)
            if match:
                raise RefusedError(
                    HTTPStatus.METHOD_NOT_ALLOWED,
                    f"{path} takes {wanted}, not {method}",
                    allow="GET, HEAD" if wanted == "GET" else wanted,
                )
        model = f"/v1/models/{urllib.parse.quote(self._name, safe='')}"
        raise RefusedError(
            HTTPStatus.NOT_FOUND,
            f"there is nothing at {path}; there is POST {model}:predict, GET {model}, "
            f"GET {model}/metadata, and GET / for a form",
        )

    def _page(self, match: re.Match[str], body: bytes) -> Answer:
        version = self._versions.newest
        page = form.page(version, self._name)
        return Answer(page.html.encode(), "text/html; charset=utf-8", version.number, page.policy)

    def _status(self, match: re.Match[str], body: bytes) -> Answer:
        self._check_model(match)
        states = {self._versions.newest.number: ("AVAILABLE", "OK", "")}
        for number, reason in self._versions.failures().items():
            states.setdefault(number, ("END", "UNKNOWN", reason))
        asked = match["version"]
        if asked and int(asked) not in states:
            raise self._not_loaded(asked)
        numbers = [int(asked)] if asked else sorted(states)
        return _as_json(
            {
                "model_version_status": [
                    {
                        "version": str(number),
                        "state": states[number][0],
                        "status": {
                            "error_code": states[number][1],
                            "error_message": states[number][2],
                        },
                    }
                    for number in numbers
                ]
            }
        )

    def _metadata(self, match: re.Match[str], body: bytes) -> Answer:
        version = self._asked(match)
        signature_defs = json_format.MessageToDict(
            version.signature_defs,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        return _as_json(
            {
                "model_spec": {
                    "name": self._name,
                    "signature_name": "",
                    "version": str(version.number),
                },
                "metadata": {"signature_def": signature_defs},
            }
        )

    def _predict(self, match: re.Match[str], body: bytes) -> Answer:
        version = self._asked(match)
        if match["verb"].lower() != "predict":
            raise unfit(
                f"the model has no signature for :{match['verb']}; it has "
                f"{listed(version.model.signatures)} for :predict"
            )
        question = read_question(json_body.read(body), version.model, self._max_batch)
        if not self._places.acquire(timeout=self._wait_seconds):
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the model has been busy with other requests for {self._wait_seconds:g} s",
            )
        try:
            outputs = question.ask(version.model)
        finally:
            self._places.release()
        text = answer_text.rows_text if question.has_rows else answer_text.columns_text
        return Answer(text(outputs).encode(), version=version.number)

    def _check_model(self, match: re.Match[str]) -> None:
        if len(match["version"] or "") > _MOST_DIGITS:
            raise unfit("there is no such version: they are numbers of up to 18 digits")
        name = urllib.parse.unquote(match["name"])
        if name != self._name:
            raise RefusedError(
                HTTPStatus.NOT_FOUND, f"there is no model {name!r} here; there is {self._name!r}"
            )
        if match["label"]:
            raise RefusedError(
                HTTPStatus.NOT_FOUND,
                f"the model {name!r} has no labels; leave the label out for its newest version, "
                f"{self._versions.newest.number}",
            )

    def _asked(self, match: re.Match[str]) -> ServedVersion:
        """The version that a path names, or the newest."""
        self._check_model(match)
        newest = self._versions.newest
        if match["version"] and int(match["version"]) != newest.number:
            raise self._not_loaded(match["version"])
        return newest

    def _not_loaded(self, version: str) -> RefusedError:
        reason = self._versions.failures().get(int(version), "")
        return RefusedError(
            HTTPStatus.NOT_FOUND,
            f"version {version} of the model {self._name!r} is not served; version "
            f"{self._versions.newest.number} is{f' ({reason})' if reason else ''}",
        )


def _as_json(content: Mapping[str, Any]) -> Answer:
    return Answer((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
