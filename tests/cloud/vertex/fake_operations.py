"""Operations of the stand-in for what Vertex AI serves: after some looks they have effect."""

import math
import re

from tests.cloud.vertex.fake_service import PLACE, FakeService, RefusedError, shown


class FakeOperations(FakeService):
    """Operations, by the resource that they are about.

    Attributes:
        operations: By name.
        looks: How often an operation must be looked at until it has ended.
        slow: Kinds of requests whose operations do not end.
        failing: By kind of request, the message with which the next operation of it fails.
    """

    def __init__(self):
        super().__init__()
        self.operations = {}
        self.looks = 2
        self.slow = ()
        self.failing = {}
        self._number = 0

    def operation_at(self, body, query, resource, number):
        operation = self.operations[f"{PLACE}/{resource}/operations/{number}"]
        operation["looks"] -= 1
        if operation["looks"] == 0:
            operation["done"] = True
            if message := operation["failure"]:
                operation["error"] = {"code": 13, "message": message}
            else:
                self._end(operation)
        return _public(operation)

    def _end(self, operation):
        try:
            operation["response"] = operation["effect"]()
        except RefusedError as refused:
            operation["error"] = {"code": 9, "message": refused.args[1]}

    def running(self, body, query, resource):
        kind, _, name = resource.partition("/")
        if name not in getattr(self, kind) and not self._of(resource):
            raise RefusedError(404, f"there is no {resource}")
        found = [_public(each) for each in self._of(resource)]
        return self.page("operations", found, query.get("pageToken"))

    def _of(self, resource):
        begin = f"{PLACE}/{resource}/operations/"
        return [each for name, each in self.operations.items() if name.startswith(begin)]

    def _operation(self, kind, resource, effect):
        name = f"{PLACE}/{resource}/operations/{self._new()}"
        failure = self.failing.pop(kind, "")
        self.operations[name] = {
            "name": name,
            "kind": kind,
            "looks": math.inf if kind in self.slow else self.looks,
            "failure": failure,
            "effect": effect,
        }
        return _public(self.operations[name])

    def _filtered(self, found, query):
        text = query.get("filter", "")
        if match := re.fullmatch(r'display_name="([^"]+)"', text):
            return [shown(each) for each in found if each.display_name == match[1]]
        match = re.fullmatch(r"labels\.([\w-]+)(?:=(\w+)|:\*)", text)
        return [
            shown(each)
            for each in found
            if not match or (match[1] in each.labels and match[2] in (None, each.labels[match[1]]))
        ]

    def _new(self):
        self._number += 1
        return str(7000 + self._number)


def _public(operation):
    """What Google tells of an operation."""
    told = ("name", "done", "error", "response")
    return {key: operation[key] for key in told if key in operation}
