"""Lets one chief at a time write to a job_dir."""

import json
import os
import posixpath
import socket
import time
import uuid

import tensorflow as tf

from tfps import whole_file
from tfps.errors import RunError

FILE = "chief.json"


class SupersededError(RunError):
    """Another chief has taken the job_dir over."""


class Fence:
    """`JOB_DIR/chief.json`: the chief that came last; every earlier one must end.

    The file is looked at before each write of what counts: a chief that was cut off from the
    platform which replaced it, and comes back, neither commits a checkpoint nor changes the report.
    """

    def __init__(self, job_dir: str):
        """Takes the job_dir over from whichever chief had it."""
        self._path = posixpath.join(job_dir, FILE)
        self._token = str(uuid.uuid4())
        holder = {
            "token": self._token,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        whole_file.write(self._path, json.dumps(holder, indent=1) + "\n", self._token)

    def check(self) -> None:
        """Does nothing while the job_dir is this chief's.

        Raises:
            SupersededError: If another chief has taken it over.
        """
        try:
            with tf.io.gfile.GFile(self._path) as file:
                holder = json.load(file)
        except (ValueError, tf.errors.NotFoundError):
            holder = {}
        if holder.get("token") == self._token:
            return
        other = "process {process} at {host}, since {since}".format_map(
            {name: holder.get(name, "unknown") for name in ("process", "host", "since")}
        )
        raise SupersededError(
            f"another chief ({other}) has taken this --job_dir over; this one ends and saves "
            "nothing: two may not train one job. If it should be the other way round, end that one "
            "and start this one again"
        )
