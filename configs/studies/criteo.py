"""The DLRM's learning rate, its embeddings' size and whether they interact, by AUC."""

import tfps


def get_study() -> tfps.Study:
    """Twenty trials, four at a time."""
    return tfps.Study(
        metric="auc",
        goal="maximize",
        parameters=(
            tfps.Parameter.between("task.learning_rate", 0.001, 0.5, "log"),
            tfps.Parameter.between("task.dim", 4, 64, "log"),
            tfps.Parameter.among("task.interaction", "true", "false"),
            tfps.Parameter.among("train.batch_size", 256, 512, 1024),
        ),
        trials=20,
        parallel_trials=4,
    )
