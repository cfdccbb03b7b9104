"""Puts charts and tables into one file of HTML, which needs nothing else to be shown."""

import time
from collections.abc import Sequence

import jinja2

from tfps.storage import atomic_file
from trainer.page.charts import charts_of
from trainer.page.job_record import JobRecord
from trainer.page.tables import tables_of

_TEMPLATE = "page.html.j2"


def page(jobs: Sequence[JobRecord], refresh_seconds: int = 0) -> str:
    """The page of a job, or of several that are compared.

    Args:
        jobs: The jobs; their names and all that they tell are escaped.
        refresh_seconds: After which a browser loads it again; 0 for never.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainer.page", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    where = ", ".join(job.job_dir for job in jobs)
    return environment.get_template(_TEMPLATE).render(
        title=" and ".join(f"{job.report.config} ({job.name})" for job in jobs),
        subtitle=f"{where}; written {written}",
        charts=charts_of(jobs),
        tables=tables_of(jobs),
        refresh_seconds=refresh_seconds,
    )


def write(jobs: Sequence[JobRecord], path: str, refresh_seconds: int = 0) -> None:
    """Writes the page of some jobs."""
    atomic_file.write(path, page(jobs, refresh_seconds))
