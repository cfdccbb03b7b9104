"""The requests of one connection: read with deadlines, checked, answered as JSON."""

import contextlib
import io
import logging
import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from tfps import byte_size
from tfps.errors import RunError, UserError
from trainer.serving import answer_text, origin
from trainer.serving.deadline_reader import DeadlineReader
from trainer.serving.http_server import LimitedServer
from trainer.serving.model_api import Answer
from trainer.serving.refusal import RefusedError, unfit

_LINGER_SECONDS = 5.0  # for which a refused body is taken, so that the refusal arrives
_BLOCK = 1 << 16
_LINE = (1 << 16) + 1  # bytes of a request's line, as of its headers in Python
_FAULT = HTTPStatus.INTERNAL_SERVER_ERROR
VERSION_HEADER = "Tfps-Model-Version"
_log = logging.getLogger(__name__)


class Handler(BaseHTTPRequestHandler):
    """Answers requests until their connection ends."""

    server: LimitedServer
    rfile: io.BufferedReader
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # what cannot be read is answered with headers, too
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Reads with deadlines."""
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """Waits for a request for as long as a connection may idle, and answers it."""
        self._reader.allow(self.server.limits.idle_seconds)
        try:
            if not self.rfile.peek(1):
                self.close_connection = True
                return
            self._reader.allow(self.server.limits.read_seconds)
            with self.server.answering():
                if self._read_head():
                    self._answer()
        except (ConnectionError, TimeoutError):  # the client is gone, or asks or takes nothing
            self.close_connection = True

    def _read_head(self) -> bool:
        """Reads a request's line and headers; False if it is answered already."""
        self._is_read = False
        self.requestline = self.command = ""
        self.request_version = self.default_request_version
        try:
            self.raw_requestline = self.rfile.readline(_LINE)
            if len(self.raw_requestline) == _LINE:
                status = HTTPStatus.REQUEST_URI_TOO_LONG
                self._refuse(RefusedError(status, "the first line of the request is too long"))
                return False
            return self.parse_request()
        except TimeoutError:
            self._refuse(self._too_slow())
            return False

    def handle_expect_100(self) -> bool:
        """Has a body sent that is waited for, or refuses it before it is."""
        try:
            self._body_size()
        except RefusedError as refusal:
            self._refuse(refusal)
            return False
        return super().handle_expect_100()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Tells of a head that cannot be read, as its ancestor finds it."""
        status = HTTPStatus(code)
        said = message or status.description or status.phrase
        self._refuse(RefusedError(status, f"the request cannot be read: {said}"))

    def version_string(self) -> str:
        """What the header Server says."""
        return "tfps"

    def log_message(self, format: str, *args: object) -> None:
        """Logs a request where somebody looks for faults."""
        _log.debug(format, *args)

    def _answer(self) -> None:
        try:
            self._check_sender()
            body = self._body()
            answer = self.server.answer(self.command, self.path.partition("?")[0], body)
        except RefusedError as refusal:
            self._refuse(refusal)
        except (RunError, UserError) as error:
            _log.error("%s", error)
            self._refuse(RefusedError(_FAULT, "the model failed; this server's log says why"))
        except (ConnectionError, TimeoutError):
            raise
        except Exception:  # a fault of this program, after which it goes on
            _log.exception("%r %r failed", self.command, self.path)
            self._refuse(RefusedError(_FAULT, "this server failed; its log says why"))
        else:
            self._send(HTTPStatus.OK, answer)

    def _refuse(self, refusal: RefusedError) -> None:
        """Answers with a refusal, and ends the connection where more of the request may come."""
        if not self._is_read:
            self.close_connection = True
        text = answer_text.error_text(refusal.message).encode(errors="backslashreplace")
        self._send(refusal.status, Answer(text), refusal.allow)
        if not self._is_read:
            self._linger()

    def _send(self, status: HTTPStatus, answer: Answer, allow: str = "") -> None:
        self.connection.settimeout(self.server.limits.read_seconds)
        self.send_response(status)
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": answer.policy,
            VERSION_HEADER: str(answer.version or ""),
            "Allow": allow,
            "Connection": "close" if self.close_connection else "",
        }
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    def _linger(self) -> None:
        """Takes what still comes of a refused request: an unread rest would lose the answer."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self._reader.allow(_LINGER_SECONDS)
            rest = bytearray(_BLOCK)
            while self._reader.readinto(rest):
                pass

    def _check_sender(self) -> None:
        if self.request_version == "HTTP/1.1" and not self.headers.get("Host"):
            raise unfit("the request has no Host")
        address = str(self.server.server_address[0])
        host, asker = self.headers.get("Host", ""), self.headers.get("Origin")
        if not origin.is_for(host, address):
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                f"the request is for {host!r}, which is no name of this server; ask "
                f"{self.server.url()}",
            )
        if asker is not None and not origin.is_same(asker, host):
            raise RefusedError(
                HTTPStatus.FORBIDDEN, f"the request comes from a page of {asker!r}, not from here"
            )

    def _body_size(self) -> int:
        """How long the body is."""
        if self.headers.get("Transfer-Encoding"):
            raise RefusedError(
                HTTPStatus.LENGTH_REQUIRED,
                "the body comes in chunks; send it whole, with a Content-Length",
            )
        encoding = self.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the body is encoded as {encoding!r}; send it as it is",
            )
        lengths = set(self.headers.get_all("Content-Length", []))
        if not lengths and self.command == "POST":
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length")
        text = lengths.pop() if lengths else "0"
        if lengths or not (text.isascii() and text.isdecimal()):
            raise unfit(f"the Content-Length {text!r} is not one number of bytes")
        if len(text) > 18 or int(text) > self.server.limits.max_body:
            raise RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body has {text} bytes, and this server takes up to "
                f"{byte_size.show(self.server.limits.max_body)} (--max_body)",
            )
        return int(text)

    def _body(self) -> bytes:
        size = self._body_size()
        try:
            body = self.rfile.read(size)
        except TimeoutError:
            raise self._too_slow() from None
        if len(body) < size:
            self.close_connection = True
            raise unfit(f"the body ended after {len(body)} of {size} bytes")
        self._is_read = True
        return body

    def _too_slow(self) -> RefusedError:
        self.close_connection = True
        seconds = self.server.limits.read_seconds
        message = f"the request did not come within {seconds:g} s"
        return RefusedError(HTTPStatus.REQUEST_TIMEOUT, message)
