"""Which task of a job is meant."""

import dataclasses


@dataclasses.dataclass(frozen=True, order=True)
class TaskName:
    """Names a task, as "worker 0"; indices start at 0."""

    job: str
    index: int

    @classmethod
    def parse(cls, text: str) -> "TaskName":
        job, _, index = text.replace("-", " ").rpartition(" ")
        if not job:
            raise ValueError(f"{text!r} names no task; a name is like 'worker 0'")
        return cls(job, int(index))

    def __str__(self) -> str:
        return f"{self.job} {self.index}"

    @property
    def label(self) -> str:
        """The task for people, who know that there is one chief: "chief", "worker 0"."""
        return self.job if self.job == "chief" else str(self)

    @property
    def file_name(self) -> str:
        """The name as part of a file's: "worker-0"."""
        return f"{self.job}-{self.index}"

    @property
    def device(self) -> str:
        """What TensorFlow calls the task's CPU in its cluster."""
        return f"/job:{self.job}/replica:0/task:{self.index}/device:CPU:0"
