"""Deploys what a job has exported: `--deploy_to`."""

import logging
import shlex
from collections.abc import Sequence

from tfps.errors import EXIT_OK, UserError
from tfps.experiment.experiment import NO_EXPORT, Train
from tfps.job_dir import JobDir, report

_log = logging.getLogger(__name__)


def check(train: Train) -> None:
    """Refuses a run that will have nothing to deploy."""
    if train.export == NO_EXPORT:
        raise UserError(f"--deploy_to with --train.export={NO_EXPORT}: leave one of them out")


def deploy_export(arguments: Sequence[str], job_dir: JobDir) -> int:
    """Deploys the exported version; exit code 0 also where `train.export_if` refuses it."""
    from cloud import deploy  # which few runs need

    done = report.load(job_dir)
    if done and done.export_refused:
        _log.warning("not deployed: the model in %s is no version", done.export_refused)
        return EXIT_OK
    if done is None or done.export is None:
        raise UserError(f"the report of {job_dir} names no exported model to deploy")
    _log.info("deploying %s", done.export)
    code = deploy.main(["cloud.deploy", *arguments, f"--model={done.export}"])
    if code != EXIT_OK:
        again = shlex.join(["python", "-m", "cloud.deploy", *arguments])
        _log.error("not deployed; try again with %s --model=%s", again, done.export)
    return code
