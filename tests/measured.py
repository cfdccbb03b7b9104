"""A task's metrics of records that are all there."""

from tfps.evaluation.metrics import RunningMetrics


def task_metrics(task, labels, predictions):
    return {name: found.value for name, found in results(task, labels, predictions).items()}


def results(task, labels, predictions):
    """The metrics with their notes."""
    running = RunningMetrics(task)
    running.add(labels, predictions)
    return running.result()
