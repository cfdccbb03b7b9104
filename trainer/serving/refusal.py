"""What a request is refused with."""

from collections.abc import Iterable
from http import HTTPStatus


class RefusedError(Exception):
    """A request that is not answered; the server goes on."""

    def __init__(self, status: HTTPStatus, message: str, allow: str = ""):
        super().__init__(message)
        self.status = status
        self.message = message
        self.allow = allow


def unfit(message: str) -> RefusedError:
    """A request whose content is not what the model takes."""
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def listed(names: Iterable[object], most: int = 12) -> str:
    """Some names for a message, the first of them where there are many."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
