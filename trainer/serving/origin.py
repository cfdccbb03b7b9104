"""For whom a request is, and whose page it comes from.

A server on a machine's loopback trusts whoever is on the machine. Pages of other sites that are
open in a browser there are not: a name of theirs may lead to the loopback, too.
"""

import ipaddress
import urllib.parse

_LOCAL_NAME = "localhost"


def is_loopback(address: str) -> bool:
    """Whether an address, or a name that stands for one, reaches this machine alone."""
    if address.lower().rstrip(".") == _LOCAL_NAME:
        return True
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_for(host: str, address: str) -> bool:
    """Whether a request is for this server.

    Args:
        host: Its header Host; empty for none.
        address: Where the server listens. By another address than a loopback's it may have any
            name.
    """
    return not host or not is_loopback(address) or is_loopback(_name_of(host))


def is_same(origin: str, host: str) -> bool:
    """Whether a page comes from where its request goes."""
    _, _, name = origin.partition("://")
    return name.lower() == host.lower() != ""


def _name_of(host: str) -> str:
    """The name without a port, and without the brackets of an IPv6 address."""
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
