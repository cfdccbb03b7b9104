"""`JOB_DIR/size.json`: how many workers and ps a run is asked to have, and what became of that."""

import dataclasses

import msgspec

from tfps.job_dir import JobDir
from tfps.job_dir.size import Size
from tfps.storage import files


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request; `answer` is empty until the chief has one."""

    workers: int
    ps: int
    answer: str = ""
    is_taken: bool = False  # a chief has ended for it

    @property
    def size(self) -> Size:
        return Size(self.workers, self.ps)


DONE = "done"


class SizeRequest:
    """The file, since who asks cannot call the chief."""

    def __init__(self, job_dir: JobDir):
        self._path = job_dir.size

    def post(self, size: Size) -> None:
        """Asks for another size, in place of any request before."""
        self._write(Asked(*size))

    def read(self, patience: float | None = None) -> Asked | None:
        """The last request; None without one that can be read."""
        try:
            return msgspec.json.decode(files.read(self._path, patience), type=Asked)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def waiting(self) -> Size | None:
        """What is asked for and has no answer; storage that is silent is not waited for."""
        asked = self._unanswered(patience=0.0)
        return asked.size if asked else None

    def answer(self, text: str) -> None:
        """Says what became of the request that waits, if one does."""
        if asked := self._unanswered():
            self._write(dataclasses.replace(asked, answer=text))

    def take(self) -> None:
        """Notes that the chief ends for the request that waits, if one does."""
        if asked := self._unanswered():
            self._write(dataclasses.replace(asked, is_taken=True))

    def began(self, size: Size) -> None:
        """Answers, as a run begins that has a size.

        A request that no chief has ended for stays: one that was lost meanwhile has not seen it.
        """
        asked = self._unanswered()
        if asked and asked.size == size:
            self.answer(DONE)
        elif asked and asked.is_taken:
            self.answer(f"the run has begun with {size} instead")

    def _unanswered(self, patience: float | None = None) -> Asked | None:
        asked = self.read(patience)
        return asked if asked and not asked.answer else None

    def _write(self, asked: Asked) -> None:
        files.replace(self._path, msgspec.json.encode(asked) + b"\n")
