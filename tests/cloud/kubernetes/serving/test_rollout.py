"""How far servers are, from what a cluster says of them."""

import pytest

from cloud.kubernetes.serving.rollout import Rollout, reasons


def deployment(wanted=3, generation=2, **status):
    return {
        "metadata": {"generation": generation},
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": 2, **status},
    }


@pytest.mark.parametrize(
    ("found", "text", "is_done"),
    [
        ({"metadata": {"generation": 1}, "spec": {}}, "asked for", False),
        (
            deployment(generation=3, replicas=3, updatedReplicas=3, availableReplicas=3),
            "asked for",
            False,
        ),
        (deployment(), "0 of 3 servers answer", False),
        # Three old ones answer, the new one does not yet.
        (
            deployment(replicas=4, updatedReplicas=1, availableReplicas=3),
            "0 of 3 servers answer, 3 old to go",
            False,
        ),
        (
            deployment(replicas=4, updatedReplicas=2, availableReplicas=4),
            "2 of 3 servers answer, 2 old to go",
            False,
        ),
        (
            deployment(replicas=4, updatedReplicas=3, availableReplicas=4),
            "3 of 3 servers answer, 1 old to go",
            False,
        ),
        (
            deployment(replicas=3, updatedReplicas=3, availableReplicas=2),
            "2 of 3 servers answer",
            False,
        ),
        (
            deployment(replicas=3, updatedReplicas=3, availableReplicas=3),
            "3 of 3 servers answer",
            True,
        ),
        (deployment(wanted=0), "0 of 0 servers answer", True),
    ],
)
def test_servers_that_answer(found, text, is_done):
    rollout = Rollout.of(found)
    assert (rollout.text, rollout.is_done, rollout.failure) == (text, is_done, "")


def test_a_rollout_is_given_up_only_where_it_is_the_last_change_that_was():
    gone = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    assert Rollout.of(deployment(conditions=[gone])).failure == "timed out"
    assert Rollout.of(deployment(generation=3, conditions=[gone])).failure == ""


def test_reasons_of_pods_are_told_once_and_shortly():
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available:\n 3 Insufficient memory.",
    }
    image = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off " + "x" * 400}}
    begins = {"waiting": {"reason": "ContainerCreating"}}
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    pods = [
        {"status": {"conditions": [unplaced]}},
        {"status": {"conditions": [unplaced]}},
        {"status": {"containerStatuses": [{"state": image}]}},
        {"status": {"containerStatuses": [{"state": begins, "lastState": killed}]}},
        {},
    ]
    first, second, third = reasons(pods)
    assert first == "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."
    assert second.startswith("ImagePullBackOff: Back-off xxx")
    assert len(second) == 301
    assert third == "the server ended with exit code 137: OOMKilled"
