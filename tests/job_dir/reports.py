"""Reports of runs that never were."""

from tfps.job_dir.report import (
    FAILED,
    BestEvaluation,
    EvaluationRow,
    ExampleCounts,
    LossScaleState,
    Report,
    ReportedBadRecord,
    ReportedFailure,
    ReportedRecovery,
    RoundCounts,
    SaveCounts,
    StalenessCounts,
    TaskCounts,
    Versions,
    WorkerShare,
)


def short_report(**fields):
    """A run's report, as it is when it begins."""
    begun = {
        "mode": "async",
        "config": "criteo",
        "cluster": TaskCounts(workers=2, ps=3),
        "versions": Versions("0.1", "2.21", "3.12", "3.11"),
        "batch_size": 64,
        "examples": ExampleCounts(per_epoch=1000),
    }
    return Report(**{**begun, **fields})


def full_report(**fields):
    """A run's report in which every field says something."""
    evaluations = [
        EvaluationRow(1, 20, {"auc": 0.82, "loss": 0.3}),
        EvaluationRow(2, 40, {"auc": 0.81, "loss": 0.4}),
    ]
    full = {
        "status": FAILED,
        "error": "ps 0 was lost",
        "negatives": 4,
        "examples": ExampleCounts(1000, trained=2000, skipped=0, repeated=5, bad=7),
        "bad_records": [ReportedBadRecord("a.tfrecord", 3, 120, 1, "its checksum is wrong")],
        "workers": [WorkerShare(3, 420, 9.0, 0.5), WorkerShare(5, 580, 10.0, 0.5)],
        "epochs": 2,
        "steps": 40,
        "staleness": StalenessCounts(0.5, [20, 20]),
        "rounds": RoundCounts(closed=20, dropped=1),
        "steps_per_lease": 4,
        "pipeline_depth": 1,
        "loss_scale": LossScaleState(1024.0, 2),
        "seconds": 12.4,
        "examples_per_second": 54321.0,
        "metrics": evaluations[-1].metrics,
        "progressive": {"auc": 0.79},
        "evaluations": evaluations,
        "best_evaluation": BestEvaluation("auc", evaluations[0]),
        "stopped_early": "auc has not become better",
        "best_auc": 0.84,
        "failures": [ReportedFailure("worker 1", "its port refused connections", 1.7e9, 2.5)],
        "failures_by_job": {"worker": 1},
        "recoveries": [ReportedRecovery("ps 0 was lost", 1.7e9, 300, 4.5)],
        "left_out": ["worker 1"],
        "storage_retries": 1,
        "init_from": "other/checkpoints/7",
        "resumed_from": "job/checkpoints/0",
        "passed_over": {"job/checkpoints/1": "a file is missing"},
        "restore_seconds": 0.5,
        "checkpoint": "job/checkpoints/1",
        "checkpoints": SaveCounts(2, 1, 4096, 0.1, 0.2, 300, {"item": 300}),
        "export": "job/export/3",
        "export_refused": "job/export/refused",
        "predictions": "job/predictions",
        "export_best": "job/export_best/2",
    }
    return short_report(**{**full, **fields})
