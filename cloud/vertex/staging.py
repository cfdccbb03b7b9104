"""What a job needs in Google Cloud Storage before it starts."""

from google.api_core import exceptions

from tfps.errors import UserError
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name, is_cloud


def check_region(flag: str, path: str, region: str) -> None:
    """Refuses a bucket that is far from the job.

    Args:
        path: `gs://` path in the bucket; any other is not looked at.
    """
    if not is_cloud(path):
        return
    bucket, _ = bucket_and_name(path)
    if far := objects.distance(bucket, f"{flag}={path}", region):
        raise UserError(far)


def upload(content: bytes, path: str) -> None:
    """Uploads a file, unless it is there; its name tells its content."""
    bucket, name = bucket_and_name(path)
    try:
        objects.client().bucket(bucket).blob(name).upload_from_string(
            content,
            "application/gzip",
            if_generation_match=0,
            timeout=objects.TIMEOUT,
            retry=objects.retrying(),
        )
    except exceptions.PreconditionFailed:
        return  # uploaded before, perhaps by a request of this very upload
    except objects.FAILURES as error:
        raise objects.explain(error, f"--staging_bucket={path}") from None
