"""What the proxy is told to do to the requests that pass through it."""

import dataclasses
import math
import threading
import time

FAULTS = ("401", "403", "429", "503", "truncate", "stall")
KINDS = ("read", "stat", "list", "bucket", "permissions", "write", "copy", "delete", "token")


@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong, and with which requests.

    Attributes:
        what: One of `FAULTS`; "truncate" ends a body half-way, "stall" sends half of it and then
            nothing more.
        kinds: Kinds of requests that it may hit; empty for all but "token".
        fraction: Share of those requests, hit in even distances: request number n is hit when
            n * fraction passes a whole number.
        next: Hits so many of those requests, the next ones; instead of `fraction`.
        skip: So many of those requests pass before the `next` ones are hit.
        object: Hits only requests with this text in the object's name.
    """

    what: str
    kinds: tuple[str, ...] = ()
    fraction: float = 0.0
    next: int = 0
    skip: int = 0
    object: str = ""

    def __post_init__(self) -> None:
        assert self.what in FAULTS, self.what
        assert set(self.kinds) <= set(KINDS), self.kinds


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the cloud behaves.

    Attributes:
        latency_seconds: Added to every request.
        bytes_per_second: Bandwidth of all connections together, each way; 0 for no limit.
        page_size: Most objects in one answer to a listing.
        stall_seconds: How long a stalled connection stays open.
        faults: What goes wrong.
        permissions: What the account may do in a bucket; buckets that are not named allow all.
        locations: Location of a bucket; "US" for those not named.
    """

    latency_seconds: float = 0.0
    bytes_per_second: float = 0.0
    page_size: int = 1000
    stall_seconds: float = 3600.0
    faults: tuple[Fault, ...] = ()
    permissions: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    locations: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, data: dict) -> "Settings":
        """From what `dataclasses.asdict` gave, after a way through JSON."""
        faults = tuple(Fault(**{**f, "kinds": tuple(f["kinds"])}) for f in data["faults"])
        return cls(**{**data, "faults": faults})


class FaultPlan:
    """Says for each request what goes wrong with it, by counting."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._counts = [0] * len(faults)
        self._lock = threading.Lock()

    def of(self, kind: str, name: str) -> str:
        """The fault of the next request of a kind for an object, "" for none."""
        hit = ""
        with self._lock:
            for index, fault in enumerate(self._faults):
                meant = kind in fault.kinds if fault.kinds else kind != "token"
                if not meant or fault.object not in name:
                    continue
                self._counts[index] += 1
                number = self._counts[index]
                passed = math.floor(number * fault.fraction) > math.floor(
                    (number - 1) * fault.fraction
                )
                is_next = fault.skip < number <= fault.skip + fault.next
                if not hit and (is_next or passed):
                    hit = fault.what
        return hit


class Bandwidth:
    """A line of so many bytes per second that all connections share."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, size: int) -> None:
        """Returns when so many bytes have had their turn on the line."""
        if not self._rate:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            due = self._free_at
        time.sleep(max(0.0, due - time.monotonic()))
