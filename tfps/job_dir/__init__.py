"""The directory of a job: where each thing lies, and the files by which its tasks communicate."""

import posixpath


class _Named:
    """The path of something in a job's directory."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, job_dir: str, owner: type) -> str:
        return posixpath.join(job_dir, self._name)


class JobDir(str):
    """A job's directory, local or gs://, with the path of each thing in it."""

    __slots__ = ()
    chief = _Named("chief.json")  # which chief came last
    cluster = _Named("cluster.json")  # addresses of the tasks
    report = _Named("report.json")
    size = _Named("size.json")  # how many tasks the run is asked to have
    page = _Named("report.html")
    checkpoints = _Named("checkpoints")
    evaluations = _Named("evaluations")
    export = _Named("export")  # versions of the model
    export_best = _Named("export_best")  # the best that an evaluator has seen
    predictions = _Named("predictions")
    history = _Named("history")  # events
    leaving = _Named("leaving")  # tasks that will go
    logs = _Named("logs")
    tasks = _Named("tasks")
    tensorboard = _Named("tensorboard")
    trackers = _Named("trackers")

    @property
    def name(self) -> str:
        """What tells the job from others: the last part of its path, if it has one."""
        return posixpath.basename(self.rstrip("/"))
