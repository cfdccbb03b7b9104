"""Requests to Google's REST APIs, repeated where that can help."""

import json
import random
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloud import optional_imports
from tfps.errors import RunError, UserError

_EXTRA = "vertex"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TIMEOUT = (10.0, 60.0)  # to connect, and between two bytes; seconds
_TRANSIENT = (429, 500, 502, 503, 504)
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
_TRIES_SECONDS = 180.0
_RANDOM = random.SystemRandom()
_MOST_PAGES = 100


class RefusedError(UserError):
    """What Google does not do, however often it is asked."""

    def __init__(self, status: int, message: str):
        super().__init__(f"Google Cloud refuses ({status}): {message}; {_hint(status, message)}")
        self.status = status


class Rest:
    """A session with Google's APIs.

    Answers that ask for patience (429, 5xx) and broken connections are followed by another try,
    after a wait that doubles each time, or as long as the answer says.
    """

    def __init__(
        self,
        session: Any,
        broken: tuple[type[Exception], ...],
        expired: tuple[type[Exception], ...] = (),
    ):
        """Uses a session of `requests`.

        Args:
            expired: What it raises when the credentials are not valid any more.
        """
        self._session = session
        self._broken = broken
        self._expired = expired

    @classmethod
    def connect(cls, endpoint: str, project: str) -> "Rest":
        """A session with the credentials of this process.

        Args:
            endpoint: `http` of this machine, which gets no credentials, or empty for Google's.
        """
        requests = optional_imports.load("requests", _EXTRA)
        if endpoint:
            check_endpoint(endpoint)
            session = requests.Session()
            session.trust_env = False  # neither a proxy nor ~/.netrc
            return cls(session, (requests.RequestException,))
        auth = optional_imports.load("google.auth", _EXTRA)
        transport = optional_imports.load("google.auth.transport.requests", _EXTRA)
        try:
            credentials, _ = auth.default(_SCOPES, quota_project_id=project)
        except auth.exceptions.DefaultCredentialsError:
            raise UserError(
                "there are no Google Cloud credentials; run `gcloud auth application-default "
                "login`, set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or "
                "give --dry_run"
            ) from None
        broken = (requests.RequestException, auth.exceptions.TransportError)
        expired = (auth.exceptions.RefreshError,)
        return cls(transport.AuthorizedSession(credentials), broken, expired)

    def get(self, url: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What is at an address."""
        shown = f"{url}?{urllib.parse.urlencode(query)}" if query else url
        return self._ask("GET", shown, None, None)

    def look(self, url: str) -> dict[str, Any] | None:
        """What is at an address, None if there is nothing."""
        try:
            return self.get(url)
        except RefusedError as refusal:
            if refusal.status != 404:
                raise
            return None

    def post(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request that may well be made twice."""
        return self._ask("POST", url, body, None)

    def post_for_headers(
        self, url: str, body: Mapping[str, Any], is_repeated: bool = True
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The answer to a request, and its headers.

        Args:
            is_repeated: Whether it is repeated as others are; else the first answer counts.
        """
        answer = self._answer("POST", url, body, None, is_repeated)
        assert not isinstance(answer, dict)
        return _decoded(answer), answer.headers

    def create(
        self, url: str, body: Mapping[str, Any], find: Callable[[], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Makes something, once.

        Args:
            find: Looks for what an earlier try may have made although it seemed to fail; called
                before every further try.
        """
        return self._ask("POST", url, body, find)

    def change(
        self, url: str, body: Mapping[str, Any], find: Callable[[], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Changes fields of what is at an address, once; arguments as those of `create`."""
        return self._ask("PATCH", url, body, find)

    def delete(self, url: str, find: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Deletes what is at an address, once.

        Args:
            find: Looks whether an earlier try has had its effect although it seemed to fail.
        """
        return self._ask("DELETE", url, None, find)

    def pages(self, ask: Callable[[str], dict[str, Any]], items: str) -> Iterator[dict[str, Any]]:
        """The items of all pages of an answer.

        Args:
            ask: Asks for the page of a token, the first one of an empty one.
        """
        token = ""
        for _ in range(_MOST_PAGES):
            page = ask(token)
            yield from page.get(items, ())
            token = page.get("nextPageToken", "")
            if not token:
                return

    def listed(
        self, url: str, items: str, query: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """What is listed at an address, on all its pages."""

        def page(token: str) -> dict[str, Any]:
            return self.get(url, {**(query or {}), **({"pageToken": token} if token else {})})

        return self.pages(page, items)

    def _ask(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        find: Callable[[], dict[str, Any] | None] | None,
    ) -> dict[str, Any]:
        answer = self._answer(method, url, body, find)
        return answer if isinstance(answer, dict) else _decoded(answer)

    def _answer(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        find: Callable[[], dict[str, Any] | None] | None,
        is_repeated: bool = True,
    ) -> Any:
        """The answer of `requests` to what was asked, or what `find` has found, a dict."""
        deadline = time.monotonic() + _TRIES_SECONDS
        wait = _FIRST_WAIT
        while True:
            reason, asked_wait = "", 0.0
            try:
                answer = self._session.request(method, url, json=body, timeout=_TIMEOUT)
            except self._expired as error:
                raise RefusedError(401, " ".join(str(error).split())) from None
            except self._broken as error:
                reason = type(error).__name__
            else:
                if answer.status_code < 400:
                    return answer
                reason = f"{answer.status_code} {_message(answer)}".strip()
                if answer.status_code not in _TRANSIENT:
                    raise RefusedError(answer.status_code, _message(answer))
                asked_wait = _seconds(answer.headers.get("Retry-After", ""))
            if not is_repeated:
                raise RunError(f"{urllib.parse.urlsplit(url).netloc} has not answered ({reason})")
            pause = min(asked_wait or wait * _RANDOM.uniform(0.5, 1.0), _LONGEST_WAIT)
            if time.monotonic() + pause > deadline:
                raise RunError(
                    f"{urllib.parse.urlsplit(url).netloc} has not answered for "
                    f"{_TRIES_SECONDS:g} s ({reason}); try again later"
                )
            time.sleep(pause)
            wait *= 2
            if find and (found := find()):
                return found


def check_endpoint(endpoint: str) -> None:
    """Refuses an address in Google's place that is not this machine's."""
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.path.strip("/"):
        raise UserError(
            f"--vertex_endpoint={endpoint}: write http://127.0.0.1:PORT; it is for a stand-in of "
            "Vertex AI on this machine"
        )


def _decoded(answer: Any) -> dict[str, Any]:
    try:
        found = json.loads(answer.text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(
            f"{urllib.parse.urlsplit(answer.url).netloc} answered with something else than JSON, "
            "perhaps a proxy did; look at https_proxy"
        )
    return found


def _message(answer: Any) -> str:
    """Google's own words, in one line."""
    try:
        text = json.loads(answer.text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        text = answer.reason or ""
    return " ".join(str(text).split())


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _hint(status: int, message: str) -> str:
    hints = {
        400: "correct what was asked for",
        401: "get new credentials with `gcloud auth application-default login`",
        404: "look at --project, --region and the name",
    }
    return _role(message) if status == 403 else hints.get(status, "see its message")


def _role(message: str) -> str:
    """Which role is missing, told by the permission that Google's message names."""
    if "iam.serviceAccounts.actAs" in message:
        return "grant the account roles/iam.serviceAccountUser on --service_account"
    if "storage.objects" in message:
        return (
            "grant roles/storage.objectViewer on the bucket to the service account that the "
            "message names, which may be Vertex AI's own"
        )
    if "artifactregistry" in message:
        return (
            "grant roles/artifactregistry.reader on the image's repository to Vertex AI's service "
            "account"
        )
    return (
        "grant the account roles/aiplatform.user (and roles/logging.viewer for the tasks' output) "
        "in --project, and enable the API aiplatform.googleapis.com there"
    )
