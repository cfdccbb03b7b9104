"""What a power cut may leave of files, from a record of the calls that changed them.

The model: a file's content is on the disk once the file is synced, the names in a directory
once the directory is. What came later may be there or not, each for itself; a file whose name is
there and whose content never was synced is empty.
"""

import copy
import dataclasses
import pathlib
import random
from collections.abc import Callable, Iterator


@dataclasses.dataclass(frozen=True)
class Change:
    """A call, as `shim.c` writes it down: created, written, renamed, unlinked, made, synced …"""

    what: str
    path: str
    target: str
    offset: int
    content: bytes


@dataclasses.dataclass
class _File:
    now: bytes = b""
    synced: bytes = b""


@dataclasses.dataclass
class _Directory:
    now: dict[str, "_File | _Directory"] = dataclasses.field(default_factory=dict)
    synced: dict[str, "_File | _Directory"] = dataclasses.field(default_factory=dict)


class Disk:
    """The files below a directory, with what of them is certain to outlive a power cut."""

    def __init__(self, root: pathlib.Path, template: pathlib.Path):
        """Begins with what a directory holds, all of it on the disk.

        Args:
            root: Where the recorded calls were.
            template: What was there before them.
        """
        self._root = root
        self._top = _read(template)

    def apply(self, change: Change) -> None:
        """Makes a recorded change."""
        above, name = self._find(change.path)
        if change.what in "CO":
            if name not in above.now:
                above.now[name] = _File()
            elif change.what == "C":
                _file(above.now[name]).now = b""
        elif change.what == "W":
            file = _file(above.now[name])
            before = file.now.ljust(change.offset, b"\0")
            end = change.offset + len(change.content)
            file.now = before[: change.offset] + change.content + before[end:]
        elif change.what == "M":
            above.now[name] = _Directory()
        elif change.what in "UD":
            del above.now[name]
        elif change.what == "R":
            target, new = self._find(change.target)
            target.now[new] = above.now.pop(name)
        elif change.what == "S":
            found = above.now[name] if name else self._top
            found.synced = copy.copy(found.now)  # type: ignore[assignment]

    def after_cut(self, survives: Callable[[], bool]) -> dict[str, bytes | None]:
        """What is there after a power cut: content by path, None for directories.

        Args:
            survives: Asked for each file and directory whether what was not synced is there.
        """
        return dict(_left(self._top, "", survives))

    def _find(self, path: str) -> tuple[_Directory, str]:
        """The directory above a path, and the name there; the root's name is empty."""
        *above, name = pathlib.PurePosixPath(path).relative_to(self._root).parts or ("",)
        found = self._top
        for part in above:
            inner = found.now[part]
            assert isinstance(inner, _Directory)
            found = inner
        return found, name


def read_record(path: pathlib.Path) -> Iterator[Change]:
    """The changes that were written down."""
    content, next_one = path.read_bytes(), 0
    while next_one < len(content):
        end = content.index(b"\n", next_one)
        what, name, target, offset, size = content[next_one:end].decode().split("\t")
        first, last = end + 1, end + 1 + int(size)
        yield Change(what, name, target, int(offset), content[first:last])
        next_one = last + 1


def drawn(seed: int) -> Callable[[], bool]:
    """Lets each thing survive or not, by lot."""
    draw = random.Random(seed)
    return lambda: draw.random() < 0.5


def write(image: dict[str, bytes | None], directory: pathlib.Path) -> None:
    """Puts what a power cut left into an empty directory."""
    for name, content in image.items():
        path = directory / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)


def _read(path: pathlib.Path) -> _Directory:
    found: dict[str, _File | _Directory] = {}
    for each in path.iterdir():
        content = None if each.is_dir() else each.read_bytes()
        found[each.name] = _read(each) if content is None else _File(content, content)
    return _Directory(found, dict(found))


def _file(found: "_File | _Directory") -> _File:
    assert isinstance(found, _File)
    return found


def _left(
    directory: _Directory, prefix: str, survives: Callable[[], bool]
) -> Iterator[tuple[str, bytes | None]]:
    names = directory.now if survives() else directory.synced
    for name, found in sorted(names.items()):
        if isinstance(found, _File):
            yield prefix + name, found.now if survives() else found.synced
        else:
            yield prefix + name, None
            yield from _left(found, f"{prefix}{name}/", survives)
