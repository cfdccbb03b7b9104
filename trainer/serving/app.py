"""TensorFlow Serving's REST requests to a model, and a form, as an ASGI application."""

import dataclasses
import ipaddress
import json
import logging
import os
import re
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import anyio
import numpy as np
from google.protobuf import json_format
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tfps import byte_size
from tfps.errors import RunError, UserError, listed
from trainer.serving import form
from trainer.serving.json_values import RefusedError
from trainer.serving.model_versions import ModelVersions, ServedVersion
from trainer.serving.question import read_question
from trainer.serving.raw_rows import RawRows

VERSION_HEADER, DELTA_HEADER = "Tfps-Model-Version", "Tfps-Model-Delta"
_READ_SECONDS = 10.0  # in which a request's body must come, however slowly it is sent
_PREDICT_SECONDS = 60.0  # until a prediction's turn comes; one that is being made is not given up
# As TensorFlow Serving reads paths.
_MODEL = (
    r"(?i:/v1/models/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>[0-9]{1,18})|/labels/(?P<label>[^/:]+))?"
)
_PAGE = re.compile("/")
_STATUS = re.compile(_MODEL + ")")
_METADATA = re.compile(_MODEL + "/metadata)")
_VERB = re.compile(_MODEL + ":(?P<verb>predict|classify|regress))")
_log = logging.getLogger(__name__)

_Answerer = Callable[[re.Match[str], bytes], Response]


@dataclasses.dataclass(frozen=True)
class ModelApp:
    """Answers HTTP requests to one model."""

    versions: ModelVersions
    name: str
    address: str
    max_body: int  # bytes
    max_batch: int
    rows: RawRows | None = None  # how it reads raw ones; None where it takes features alone
    places: anyio.CapacityLimiter = dataclasses.field(  # of predictions at a time
        default_factory=lambda: anyio.CapacityLimiter(os.cpu_count() or 1)
    )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        response = await self._respond(Request(scope, receive))
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        try:
            self._check_sender(request)
            # As it was sent: a model's name may have a slash, encoded.
            path = request.scope["raw_path"].decode("latin-1")
            give, match = self._find(request.method, path)
            body = await self._body(request)
            with anyio.fail_after(_PREDICT_SECONDS):
                return await anyio.to_thread.run_sync(give, match, body, limiter=self.places)
        except RefusedError as refusal:
            headers = {"Allow": refusal.allow} if refusal.allow else {}
            return JSONResponse({"error": refusal.message}, refusal.status, headers)
        except ClientDisconnect:
            return _fault("the request ended before its body had come", HTTPStatus.BAD_REQUEST)
        except TimeoutError:
            said = f"the model has been busy with other requests for {_PREDICT_SECONDS:g} s"
            return _fault(said, HTTPStatus.SERVICE_UNAVAILABLE)
        except (RunError, UserError) as error:
            _log.error("%s", error)
            return _fault("the model failed; this server's log says why")
        except Exception:  # a fault of this program, after which it continues
            _log.exception("%r %r failed", request.method, request.scope["path"])
            return _fault("this server failed; its log says why")

    def _check_sender(self, request: Request) -> None:
        """Refuses other sites' pages that are open in a browser on this machine.

        A server on the loopback trusts whoever is on the machine, and a name of another site may
        lead to the loopback, too.
        """
        host, asker = request.headers.get("host", ""), request.headers.get("origin")
        if is_loopback(self.address) and not is_loopback(_name_of(host)):
            raise RefusedError(
                f"the request is for {host!r}, which is no name of this server; ask localhost",
                HTTPStatus.FORBIDDEN,
            )
        if asker is not None and asker.partition("://")[2].lower() != host.lower():
            raise RefusedError(
                f"the request comes from a page of {asker!r}, not from here", HTTPStatus.FORBIDDEN
            )

    async def _body(self, request: Request) -> bytes:
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise RefusedError(
                f"the body is encoded as {encoding!r}; send it as it is",
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            )
        body = bytearray()
        try:
            with anyio.fail_after(_READ_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > self.max_body:
                        raise RefusedError(
                            f"the body has more than {byte_size.show(self.max_body)}, which this "
                            "server takes (--max_body)",
                            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        )
        except TimeoutError:
            raise RefusedError(
                f"the request did not come within {_READ_SECONDS:g} s", HTTPStatus.REQUEST_TIMEOUT
            ) from None
        return bytes(body)

    def _find(self, method: str, path: str) -> tuple[_Answerer, re.Match[str]]:
        """What answers a method and a path."""
        answers: tuple[tuple[str, re.Pattern[str], _Answerer], ...] = (
            ("GET", _PAGE, self._page),
            ("GET", _STATUS, self._status),
            ("GET", _METADATA, self._metadata),
            ("POST", _VERB, self._predict),
        )
        for wanted, pattern, give in answers:
            match = pattern.fullmatch(path)
            if match and wanted == ("GET" if method == "HEAD" else method):
                return give, match
            if match:
                raise RefusedError(
                    f"{urllib.parse.unquote(path)} takes {wanted}, not {method}",
                    HTTPStatus.METHOD_NOT_ALLOWED,
                    allow="GET, HEAD" if wanted == "GET" else wanted,
                )
        model = f"/v1/models/{urllib.parse.quote(self.name, safe='')}"
        raise RefusedError(
            f"there is nothing at {urllib.parse.unquote(path)}; there is POST {model}:predict, "
            f"GET {model}, GET {model}/metadata, and GET / for a form",
            HTTPStatus.NOT_FOUND,
        )

    def _page(self, match: re.Match[str], body: bytes) -> Response:
        version = self.versions.newest
        html, policy = form.page(version, self.name, self.rows)
        headers = {"Content-Security-Policy": policy, VERSION_HEADER: str(version.number)}
        return HTMLResponse(html, headers=headers)

    def _status(self, match: re.Match[str], body: bytes) -> Response:
        self._check_model(match)
        states = {self.versions.newest.number: ("AVAILABLE", "OK", "")}
        for number, reason in self.versions.failures().items():
            states.setdefault(number, ("END", "UNKNOWN", reason))
        asked = match["version"]
        if asked and int(asked) not in states:
            raise self._not_loaded(asked)
        numbers = [int(asked)] if asked else sorted(states)
        statuses = []
        for number in numbers:
            state, code, reason = states[number]
            status = {"error_code": code, "error_message": reason}
            statuses.append({"version": str(number), "state": state, "status": status})
        return JSONResponse({"model_version_status": statuses})

    def _metadata(self, match: re.Match[str], body: bytes) -> Response:
        version = self._asked(match)
        spec = {"name": self.name, "signature_name": "", "version": str(version.number)}
        signatures = json_format.MessageToDict(
            version.signature_defs,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": signatures}})

    def _predict(self, match: re.Match[str], body: bytes) -> Response:
        version = self._asked(match)
        if match["verb"].lower() != "predict":
            raise RefusedError(
                f"the model has no signature for :{match['verb']}; it has "
                f"{listed(version.model.signatures)} for :predict"
            )
        question = read_question(body, version.model, self.max_batch, self.rows)
        delta = version.model.delta  # at least: a newer one may come before the answer
        outputs = {
            # Of float32 the shortest numbers that give them back.
            name: array.astype(str).astype(np.float64).tolist()
            for name, array in question.ask(version.model).items()
        }
        [single, *others] = outputs.values()
        content: Any = outputs if others else single  # the name of a single output is left out
        if question.has_rows and others:
            content = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values())]  # noqa: B905 - of equal length
        key = "predictions" if question.has_rows else "outputs"
        # NaN and the infinities stand as they are, which Starlette's own JSON refuses.
        text = json.dumps({key: content}, ensure_ascii=False)
        headers = {VERSION_HEADER: str(version.number), DELTA_HEADER: str(delta)}
        return Response(text, media_type="application/json", headers=headers)

    def _check_model(self, match: re.Match[str]) -> None:
        name = urllib.parse.unquote(match["name"])
        if name != self.name:
            raise RefusedError(
                f"there is no model {name!r} here; there is {self.name!r}",
                HTTPStatus.NOT_FOUND,
            )
        if match["label"]:
            raise RefusedError(
                f"the model {self.name!r} has no labels; leave the label out for its newest "
                f"version, {self.versions.newest.number}",
                HTTPStatus.NOT_FOUND,
            )

    def _asked(self, match: re.Match[str]) -> ServedVersion:
        """The version that a path names, or the newest."""
        self._check_model(match)
        newest = self.versions.newest
        if match["version"] and int(match["version"]) != newest.number:
            raise self._not_loaded(match["version"])
        return newest

    def _not_loaded(self, version: str) -> RefusedError:
        reason = self.versions.failures().get(int(version), "")
        return RefusedError(
            f"version {version} of the model {self.name!r} is not served; version "
            f"{self.versions.newest.number} is{f' ({reason})' if reason else ''}",
            HTTPStatus.NOT_FOUND,
        )


def is_loopback(address: str) -> bool:
    """Whether an address, or a name that stands for one, reaches this machine alone."""
    if address.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """The name of a header Host, without a port and the brackets of an IPv6 address."""
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _fault(message: str, status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR) -> Response:
    return JSONResponse({"error": message}, status)
