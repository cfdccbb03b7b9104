"""Google's clients for Vertex AI, their requests retried where that can help."""

import itertools
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import google.auth
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from google.protobuf import json_format

from cloud import optional_imports
from cloud.vertex.checks import VertexSettings
from tfps.errors import RunError, UserError
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name, is_cloud

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TIMEOUT = 60.0  # of one request; seconds
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
_TRIES_SECONDS = 180.0
_MOST_PAGES = 100
_MOST_LISTED = 10_000
_MOST_CHARACTERS = 1000  # of a message
Found = Any  # a message of Vertex AI's, or an operation as JSON


class RefusedError(UserError):
    """What Google does not do, however often it is asked."""

    def __init__(self, status: int, message: str):
        super().__init__(f"Google Cloud refuses ({status}): {message}; {_hint(status, message)}")
        self.status = status


class Client:
    """Vertex AI in one region, with the credentials of this process; a stand-in gets none."""

    def __init__(self, settings: VertexSettings):
        endpoint = settings.endpoint.rstrip("/")
        if endpoint:
            check_endpoint(endpoint)
        self.settings = settings
        self._library = optional_imports.load("google.cloud.aiplatform_v1", "vertex")
        self._credentials = _credentials(endpoint, settings.project)
        self._session = self._direct(AuthorizedSession(self._credentials))
        self.url = endpoint or f"https://{settings.region}-aiplatform.googleapis.com"
        self.logs_url = endpoint or "https://logging.googleapis.com"

    def service(self, name: str) -> Any:
        """Google's client of a service, such as Job."""
        kind = getattr(self._library, f"{name}ServiceClient")
        transport = kind.get_transport_class("rest")(host=self.url, credentials=self._credentials)
        self._direct(transport._session)
        return kind(transport=transport)

    def _direct(self, session: Any) -> Any:
        """A session that reaches a stand-in without a proxy and without ~/.netrc."""
        session.trust_env = not self.settings.endpoint
        return session

    def message(self, kind: str, body: Mapping[str, Any]) -> Any:
        """A message of Vertex AI's, from its JSON."""
        found = getattr(self._library, kind)
        return found(json_format.ParseDict(body, found.pb(found())))

    def call(
        self, method: Callable[..., Any], find: Callable[[], Found] | None = None, **request: Any
    ) -> Found:
        """The answer to a request by a method of a `service`.

        An earlier try may have succeeded although it seemed to fail: before every further one
        `find` looks for its effect, which then is the answer.
        """
        return _answer(
            self.url, lambda: method(request=request, retry=None, timeout=_TIMEOUT), find
        )

    def look(self, method: Callable[..., Any], **request: Any) -> Found | None:
        """The answer to a request; None if there is no such thing."""
        try:
            return self.call(method, **request)
        except RefusedError as refusal:
            if refusal.status != 404:
                raise
            return None

    def listed(
        self, method: Callable[..., Any], wanted: str = "", name: str = "", most: int = _MOST_LISTED
    ) -> list[Any]:
        """What is listed on all pages, of a resource or of the region, where a filter holds."""
        place = {"name": name} if name else {"parent": self.settings.parent}
        request = {**place, "filter": wanted, "page_size": 100}

        def items() -> list[Any]:
            pager = method(request=request, retry=None, timeout=_TIMEOUT)
            return list(itertools.islice(pager, most))

        return list(_answer(self.url, items))

    def operation(self, name: str) -> dict[str, Any]:
        return self._get(f"{self.url}/v1/{name}")

    def operations(self, resource: str) -> list[dict[str, Any]]:
        """The operations on a resource as JSON, also those that have ended."""
        # Google's client asks for them below /ui/, which is not documented, and fails at fields of
        # their metadata that are younger than it.
        url = f"{self.url}/v1/{resource}/operations?pageSize=100"
        try:
            return list(pages(lambda token: self._get(f"{url}&pageToken={token}"), "operations"))
        except RefusedError as refusal:
            if refusal.status != 404:
                raise
            return []

    def _get(self, url: str) -> dict[str, Any]:
        return dict(_answer(url, lambda: _checked(self._session.get(url, timeout=_TIMEOUT))[0]))

    def post(
        self, url: str, body: Mapping[str, Any], is_retried: bool = True
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The answer to JSON, and its headers, of an address that Google's clients do not ask."""

        def send() -> tuple[dict[str, Any], Mapping[str, str]]:
            return _checked(self._session.post(url, json=body, timeout=_TIMEOUT))

        found: tuple[dict[str, Any], Mapping[str, str]] = _answer(url, send, is_retried=is_retried)
        return found


def shown(message: Any) -> dict[str, Any]:
    """The JSON of a message of Vertex AI's."""
    return dict(json_format.MessageToDict(type(message).pb(message)))


def pages(ask: Callable[[str], dict[str, Any]], items: str) -> Iterator[dict[str, Any]]:
    """The items of all pages of JSON; `ask` asks for the page of a token, at first an empty one."""
    token = ""
    for _ in range(_MOST_PAGES):
        page = ask(token)
        yield from page.get(items, ())
        token = page.get("nextPageToken", "")
        if not token:
            return


def check_bucket(flag: str, path: str, region: str) -> None:
    """Refuses a `gs://` path whose bucket is far from a region; passes over any other path."""
    if is_cloud(path):
        bucket, _ = bucket_and_name(path)
        if far := objects.distance(bucket, f"{flag}={path}", region):
            raise UserError(far)


def check_endpoint(endpoint: str) -> None:
    """Refuses an address in Google's place that is not this machine's."""
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.path.strip("/"):
        raise UserError(
            f"--vertex_endpoint={endpoint}: write http://127.0.0.1:PORT; it is for a stand-in of "
            "Vertex AI on this machine"
        )


def _credentials(endpoint: str, project: str) -> Any:
    if endpoint:
        return AnonymousCredentials()
    try:
        return google.auth.default(_SCOPES, quota_project_id=project)[0]
    except DefaultCredentialsError:
        raise UserError(
            "there are no Google Cloud credentials; run `gcloud auth application-default "
            "login`, set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or "
            "give --dry_run"
        ) from None


def _answer(
    url: str,
    ask: Callable[[], Found],
    find: Callable[[], Found] | None = None,
    is_retried: bool = True,
) -> Found:
    """What `ask` returns, again after errors that may pass, or what `find` finds meanwhile."""
    tries = itertools.count()
    limit = _TRIES_SECONDS if is_retried else 0.0

    def ask_once() -> Found:
        is_first = next(tries) == 0
        return (not is_first and find and find()) or ask()

    retry = objects.retrying(limit).with_delay(initial=_FIRST_WAIT, maximum=_LONGEST_WAIT)
    host = urllib.parse.urlsplit(url).netloc
    try:
        return retry(ask_once)()
    except exceptions.RetryError as error:
        tried = f" for {limit:g} s" if is_retried else ""
        reason = _reason(error.cause)
        raise RunError(f"{host} has not answered{tried} ({reason}); try again later") from None
    except exceptions.GoogleAPICallError as error:
        raise RefusedError(error.code or 0, _message(error)) from None
    except GoogleAuthError as error:
        raise RefusedError(401, " ".join(str(error).split())) from None
    except (json_format.ParseError, requests.exceptions.JSONDecodeError):
        raise RunError(
            f"{host} answered with something else than JSON, perhaps a proxy did; look at "
            "https_proxy"
        ) from None
    except requests.RequestException as error:
        raise RunError(f"{host} cannot be asked: {type(error).__name__}") from None


def _checked(answer: requests.Response) -> tuple[dict[str, Any], Mapping[str, str]]:
    if answer.status_code >= 400:
        raise exceptions.from_http_response(answer)
    return answer.json(), answer.headers


def _message(error: exceptions.GoogleAPICallError) -> str:
    """Google's own words, in one line, without the address before them."""
    text = " ".join(str(error.message).partition(": ")[2].split())
    return text[:_MOST_CHARACTERS]


def _reason(error: Any) -> str:
    if isinstance(error, exceptions.GoogleAPICallError):
        return f"{error.code} {_message(error)}"
    return type(error).__name__


def _hint(status: int, message: str) -> str:
    hints = {
        400: "correct what was asked for",
        401: "get new credentials with `gcloud auth application-default login`",
        404: "look at --project, --region and the name",
    }
    return _role(message) if status == 403 else hints.get(status, "see its message")


def _role(message: str) -> str:
    """Which role is missing, by the permission that Google's message names."""
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
