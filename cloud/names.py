"""What names and labels may be, so that every platform takes them."""

import re
from collections.abc import Mapping

from tfps.errors import UserError

_NAME = r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?"
_LABEL_KEY = r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?"
_LABEL_VALUE = r"([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)?"


def check_name(name: str) -> None:
    """Refuses a name that some platform would."""
    if not re.fullmatch(_NAME, name):
        raise UserError(
            f'--name={name}: write 1 to 40 lowercase letters, digits and "-", beginning with a '
            "letter and not ending with -"
        )


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuses labels that some platform would."""
    for key, value in labels.items():
        if not re.fullmatch(_LABEL_KEY, key) or not re.fullmatch(_LABEL_VALUE, value):
            raise UserError(
                f"--label={key}={value}: keys and values are at most 63 lowercase letters, digits, "
                '"_" and "-", begin and end with a letter or digit, keys with a letter'
            )
