"""Fields of JSON that a person may have changed: each is asked for by its name and its type."""

import json
from typing import Any

from tfps.errors import UserError
from tfps.storage.paths import is_file_name

MEND = "run trainer.prepare again"


class JsonFields:
    """The fields of a JSON object in a dataset's manifest."""

    def __init__(self, content: Any, where: str):
        """Looks at no field yet.

        Args:
            content: What was decoded; anything but an object has no fields.
        """
        self._content = content if isinstance(content, dict) else {}
        self.where = where

    @classmethod
    def decode(cls, text: str, where: str, number: int) -> "JsonFields":
        """Reads a text that says of which format it is.

        Args:
            number: Of the format that it must have.
        """
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"{where} is not JSON ({error}); {MEND}") from None
        found = content.get("format") if isinstance(content, dict) else None
        if found != number:
            raise UserError(
                f"{where} has format {found!r}, but this version reads {number}; {MEND}"
            )
        return cls(content, where)

    def get(self, key: str, kind: Any) -> Any:
        """The value of a field."""
        value = self._content.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            name = getattr(kind, "__name__", kind)
            raise UserError(f"{self.where}: {key!r} is {value!r}, not a {name}; {MEND}")
        return value

    def file(self) -> str:
        """The field `file`: the name of a file in the dataset's directory."""
        name = self.get("file", str)
        if not is_file_name(name):
            raise UserError(f"{self.where}: {name!r} is not the name of a file; {MEND}")
        return str(name)

    def object(self, key: str) -> "JsonFields":
        """The fields of the object that a field holds."""
        return JsonFields(self.get(key, dict), f"{self.where}: {key}")

    def objects(self, key: str) -> list["JsonFields"]:
        """The fields of each object in the list that a field holds."""
        return [JsonFields(each, f"{self.where}: {key}") for each in self.get(key, list)]
