"""The file that describes a cluster where that is too long for a variable."""

import os
import stat

from tfps.errors import UserError

MOST_BYTES = 1 << 20  # as much as a ConfigMap of Kubernetes holds: 9,000 addresses of 110 bytes


def read(variable: str, path: str) -> str:
    """Reads the file.

    Args:
        variable: What names it, for messages.
        path: Where it is.

    Raises:
        UserError: If it is no file that can be read, is too large, or is not UTF-8.
    """
    mend = f'give {variable} the path of a JSON file {{"cluster": {{…}}}}, or unset it'
    try:
        # Opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{variable}={path} is no regular file; {mend}")
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{variable}={path} cannot be read ({reason}); {mend}") from None
    if len(data) > MOST_BYTES:
        raise UserError(
            f"{variable}={path} has more than {MOST_BYTES} bytes, so it is no cluster; {mend}"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{variable}={path} is not UTF-8; {mend}") from None
