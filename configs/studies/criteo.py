"""The DLRM's learning rate, its embeddings' size and whether they interact, by AUC."""

from tfps.experiment.study import Parameter, Study


def get_study() -> Study:
    """Twenty trials, four at a time."""
    return Study(
        metric="auc",
        goal="maximize",
        parameters=(
            Parameter.between("task.learning_rate", 0.001, 0.5, "log"),
            Parameter.between("task.dim", 4, 64, "log"),
            Parameter.among("task.interaction", "true", "false"),
            Parameter.among("train.batch_size", 256, 512, 1024),
        ),
        trials=20,
        parallel_trials=4,
    )
