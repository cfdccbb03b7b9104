"""What the files and signatures of an exported model are called."""

import posixpath

EXPORT_DIRECTORY = "export"  # in the job_dir: versions of the model
GRAPH_FILE = "saved_model.pb"
SCHEMA_FILE = "schema.json"
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
VARIABLES_DIRECTORY, VARIABLES_NAME = "variables", "variables"
SLICES = "slices"  # attribute of the SavedModel: variables of tables that no process holds whole
FEATURES_SIGNATURE, EXAMPLES_SIGNATURE = "serving_default", "serving_examples"
EXAMPLES_INPUT = "examples"  # of the second signature


def variables_prefix(directory: str) -> str:
    """Prefix of the files in which a SavedModel has its variables."""
    return posixpath.join(directory, VARIABLES_DIRECTORY, VARIABLES_NAME)
