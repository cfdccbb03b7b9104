"""Copies shards from gs:// to a worker's disk when closures ask for them."""

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import pathlib
import posixpath
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

import google_crc32c
import tensorflow as tf
from google.cloud.storage import Blob

from tfps import byte_size
from tfps.data.manifest import Manifest
from tfps.errors import UserError
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name, is_cloud

ASKED, SHARDS = "asked", "shards"
POLL_SECONDS = 0.25
IN_USE_SECONDS = 600.0  # what was asked for so recently is not evicted
_CHUNK_BYTES = 8 << 20
_CONNECTIONS = 4
_PATIENCE_SECONDS = 60.0  # after a failure, before the shard is tried again
_PARTIAL = ".partial"
_log = logging.getLogger(__name__)


class CachedPaths:
    """The shards on gs:// of some datasets and where their copies are."""

    def __init__(self, cache_dir: str, datasets: Sequence[Manifest]) -> None:
        if is_cloud(cache_dir) or any(sign in cache_dir for sign in "*?[\\"):
            raise UserError(
                f"--cache_dir={cache_dir} must be a directory on the worker's disk, its name "
                "without *, ?, [ and \\"
            )
        self._cache_dir = cache_dir
        self._shards = [
            (dataset.path_of(shard), shard.generation)
            for dataset in datasets
            for shard in dataset.shards
            if cache_dir and shard.generation
        ]

    def locate(self, path: tf.Tensor) -> tf.Tensor:
        """The path to read a shard from, scalar string: its copy if there is one, else its own.

        Leaves a note in either case. A note that cannot be written, say on a full disk, is no
        error: the shard is then read from where it is.
        """
        if not self._shards:
            return path
        known = tf.constant([path for path, _ in self._shards])
        names = [copy_name(*shard) for shard in self._shards]
        notes = tf.constant([note(*shard) for shard in self._shards])
        is_it = tf.equal(known, path)
        place = tf.argmax(tf.cast(is_it, tf.int32))
        is_known = tf.reduce_any(is_it)
        asked = tf.constant([posixpath.join(self._cache_dir, ASKED, name) for name in names])
        copies = tf.constant([posixpath.join(self._cache_dir, SHARDS, name) for name in names])

        def known_path() -> tf.Tensor:
            with tf.control_dependencies([_written(asked[place], notes[place])]):
                found = tf.raw_ops.MatchingFiles(pattern=copies[place])
            return tf.cond(tf.size(found) > 0, lambda: copies[place], lambda: path)

        return tf.cond(is_known, known_path, lambda: path)


def copy_name(path: str, generation: int) -> str:
    """Name of the file that holds a copy of an object's generation."""
    return hashlib.sha256(note(path, generation).encode()).hexdigest()[:32]


def note(path: str, generation: int) -> str:
    """What a note says."""
    return f"{path}#{generation}"


def _written(name: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
    """Writes a file; what goes wrong is ignored, which only a dataset can do in a graph."""

    def write(content: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(name, content)]):
            return tf.constant(1)

    written = tf.data.Dataset.from_tensors(content).map(write).ignore_errors()
    return written.reduce(0, lambda total, one: total + one)


class ShardCache:
    """Keeps copies of the shards that were asked for, and the directory within its size.

    Names of copies can be computed, and a copy is not compared with its object again: who can write
    to the directory chooses what is trained, so it belongs to the user alone.

    Several processes may share a directory: each copy is made under its own lock, and eviction has
    another. A process that dies frees its locks.
    """

    def __init__(self, cache_dir: str, limit_bytes: int) -> None:
        self._directory = pathlib.Path(cache_dir)
        self._asked = pathlib.Path(cache_dir, ASKED)
        self._shards = pathlib.Path(cache_dir, SHARDS)
        self._limit_bytes = limit_bytes
        self._not_before: dict[str, float] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(_CONNECTIONS, "fetch")

    def make_directories(self) -> None:
        """Makes the directory and those in it that are not there."""
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        for directory in (self._directory, self._asked, self._shards):
            directory.mkdir(mode=0o700, exist_ok=True)
            _make_private(directory)

    def start(self) -> None:
        """Makes the directory, then works in the background until the process ends."""
        self.make_directories()
        threading.Thread(target=self._work, name="shard cache", daemon=True).start()

    def fetch_asked(self) -> None:
        """Copies what was asked for lately and is not there, the latest first."""
        self.make_directories()
        for name, asked_at in sorted(self._last_asked().items(), key=lambda item: -item[1]):
            if time.time() - asked_at > IN_USE_SECONDS:
                return
            if time.monotonic() < self._not_before.get(name, 0.0) or self._copy(name).exists():
                continue
            try:
                self._fetch(name, _read(self._asked / name))
            except (OSError, ValueError, *objects.FAILURES) as error:
                self._not_before[name] = time.monotonic() + _PATIENCE_SECONDS
                _log.warning("a shard is read without a copy on disk: %s", error)

    def _work(self) -> None:
        while True:
            try:
                self.fetch_asked()
            except OSError as error:  # the directory was wiped just now, or is not there any more
                _log.warning("no copies of shards are made: %s", error)
                time.sleep(_PATIENCE_SECONDS)
            time.sleep(POLL_SECONDS)

    def _fetch(self, name: str, text: str) -> None:
        path, _, generation = text.rpartition("#")
        if copy_name(path, int(generation)) != name:
            return  # a note that is being written
        with _locked(self._shards / f"{name}.lock") as is_mine:
            if not is_mine or self._copy(name).exists():
                return
            bucket, object_name = bucket_and_name(path)
            blob = objects.client().bucket(bucket).blob(object_name, generation=int(generation))
            blob.reload(timeout=objects.TIMEOUT, retry=objects.retrying())
            partial = self._copy(name + _PARTIAL)
            if not self._make_room(partial, int(blob.size)):
                self._not_before[name] = time.monotonic() + _PATIENCE_SECONDS
                return
            began = time.monotonic()
            try:
                self._download(blob, partial)
                partial.rename(self._copy(name))
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            seconds = time.monotonic() - began
            size = byte_size.show(blob.size)
            _log.info("cached %s: %s in %.1f s", note(path, 0)[:-2], size, seconds)

    def _download(self, blob: Blob, partial: pathlib.Path) -> None:
        """Fetches ranges side by side into a file and holds it against the object's checksum."""
        fetch = objects.retrying()(blob.download_as_bytes)

        def fetch_range(first: int) -> None:
            last = min(first + _CHUNK_BYTES, blob.size) - 1
            content = fetch(
                start=first, end=last, checksum=None, timeout=objects.TIMEOUT, retry=None
            )
            if len(content) != last - first + 1:
                raise OSError(f"{blob.name}: {len(content)} bytes came for {first}-{last}")
            os.pwrite(file.fileno(), content, first)

        with _opened(partial, os.O_RDWR, "rb+") as file:
            if blob.size:  # a full disk is found out now
                os.posix_fallocate(file.fileno(), 0, blob.size)
            list(self._pool.map(fetch_range, range(0, blob.size, _CHUNK_BYTES)))
            crc = google_crc32c.Checksum()
            while chunk := file.read(_CHUNK_BYTES):
                crc.update(chunk)
        if objects.hexadecimal(blob.crc32c) != crc.hexdigest().decode():
            raise OSError(f"gs://{blob.bucket.name}/{blob.name} arrived damaged")

    def _make_room(self, partial: pathlib.Path, size: int) -> bool:
        """Evicts the least recently used copies until a file fits, and makes it; else False."""
        with _locked(self._shards / "evict.lock", waits=True):
            partial.unlink(missing_ok=True)  # of a process that died
            sizes = {path: path.stat().st_size for path in self._shards.iterdir()}
            copies = [path for path in sizes if not path.suffix]
            last_asked = self._last_asked()
            free = self._limit_bytes - sum(sizes.values())
            for path in sorted(copies, key=lambda path: last_asked.get(path.name, 0.0)):
                is_in_use = time.time() - last_asked.get(path.name, 0.0) < IN_USE_SECONDS
                if free >= size or is_in_use:
                    break
                path.unlink()
                (self._asked / path.name).unlink(missing_ok=True)
                free += sizes[path]
            if free < size:
                return False
            with _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "wb") as file:
                file.truncate(size)
        return True

    def _last_asked(self) -> dict[str, float]:
        """When each shard was used last, seconds since 1970, by the name of its copy."""
        return {entry.name: entry.stat().st_mtime for entry in os.scandir(self._asked)}

    def _copy(self, name: str) -> pathlib.Path:
        return self._shards / name


def _make_private(directory: pathlib.Path) -> None:
    """Leaves a directory to its owner, who must be this process's user."""
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{directory} belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        raise PermissionError(errno.EPERM, f"others can write to {directory} (mode {mode:o})")
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)


def _opened(path: pathlib.Path, flags: int, mode: str) -> IO[Any]:
    """Opens a file itself: a link is refused."""
    return os.fdopen(os.open(path, flags | os.O_NOFOLLOW, 0o600), mode)


def _read(path: pathlib.Path) -> str:
    with _opened(path, os.O_RDONLY, "r") as file:
        return str(file.read())


@contextlib.contextmanager
def _locked(path: pathlib.Path, waits: bool = False) -> Iterator[bool]:
    """Holds the lock of a file; gives False if another process does."""
    with _opened(path, os.O_WRONLY | os.O_CREAT, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
