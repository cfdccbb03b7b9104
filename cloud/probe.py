"""Asks a task whether it answers, for a platform that restarts one that does not.

    python -m cloud.probe              # this task, as TF_CONFIG has it
    python -m cloud.probe HOST:PORT    # any task

It ends with 0 if the task's server answers, else with 3 and what was seen: a container's liveness
probe. A stopped or frozen process, which keeps its port, is found like one that has ended. For a
task that serves nothing, an evaluator or one process without cluster, it ends with 0.
"""

import os
import sys
from collections.abc import Sequence

from tfps.cluster.liveness import probe
from tfps.cluster.tf_config import decode
from tfps.errors import EXIT_OK, EXIT_RUN, UserError


def main(argv: Sequence[str]) -> int:
    """Asks the task of TF_CONFIG, or at an address; 0 if it answers or serves nothing, 3 if not."""
    try:
        address = _address(argv[1:])
        if address is None:
            return EXIT_OK
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code
    seen = probe(address).liveness
    if seen.answers:
        return EXIT_OK
    print(f"error: {address}: {seen.value}; {seen.what_to_do}", file=sys.stderr)  # noqa: T201
    return EXIT_RUN


def _address(arguments: Sequence[str]) -> str | None:
    if not arguments:
        cluster = decode(os.environ)
        if cluster.is_local or cluster.job == "evaluator":
            return None
        # Its own name may not resolve in its own container.
        return f"localhost:{cluster.address.rsplit(':', 1)[1]}"
    host, colon, port = arguments[0].rpartition(":")
    if len(arguments) > 1 or not (host and colon and port.isdecimal() and int(port) < 1 << 16):
        raise UserError(f"{' '.join(arguments)!r} is no address; write one as host:port")
    return arguments[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
