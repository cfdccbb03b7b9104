"""The package route: the project is packed, uploaded once under its hash, and installed."""

import hashlib
import io
import tarfile
import tomllib

import pytest

from cloud.sdist import Sdist
from tests.cloud.vertex.conftest import CLUSTER
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.project import ROOT
from tfps.errors import UserError
from tfps.storage import objects

PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "mine"
version = "1.0"
[tool.setuptools]
packages = ["mine"]
"""
ARGUMENTS = ("--config=mine/model.py", "--job_dir=gs://bucket/run")


@pytest.fixture(name="project")
def project_fixture(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "mine" / "model.py").write_text("x = 1\n")
    return tmp_path


def test_the_same_files_make_the_same_package(project):
    first = Sdist.build(str(project))
    assert (first.name, "mine/model.py" in first.files()) == ("mine-1.0.tar.gz", True)
    for path in project.rglob("*.py"):
        path.touch()
    assert Sdist.build(str(project)) == first
    digest = hashlib.sha256(first.content).hexdigest()
    assert first.path("gs://b/dir") == f"gs://b/dir/packages/{digest}/mine-1.0.tar.gz"
    (project / "mine" / "model.py").write_text("x = 2\n")
    second = Sdist.build(str(project))
    assert second.path("gs://b") != first.path("gs://b")
    with tarfile.open(fileobj=io.BytesIO(second.content)) as archive:
        assert archive.extractfile("mine-1.0/mine/model.py").read() == b"x = 2\n"


def test_a_package_is_uploaded_once(cloud, vertex, vertex_submit, project):
    cloud.set(locations={"bucket": "US-CENTRAL1"})
    flags = (*CLUSTER, f"--package={project}", "--staging_bucket=gs://bucket/staging")
    cloud.counted()
    code, dry, _ = vertex_submit("--dry_run", *flags, "--", *ARGUMENTS)
    assert (code, vertex.counts, cloud.counted()["requests"]) == (0, {}, {})
    for _ in range(2):
        assert vertex_submit(*flags, "--", *ARGUMENTS)[0] == 0
    sdist = Sdist.build(str(project))
    path = sdist.path("gs://bucket/staging")
    assert path in dry
    for job in vertex.jobs.values():
        for pool in job.job_spec.worker_pool_specs:
            spec = pool.python_package_spec
            assert list(spec.package_uris) == [path]
            own = ("--chief_works", *ARGUMENTS)
            assert (spec.python_module, tuple(spec.args)) == ("trainer.task", own)
            assert spec.executor_image_uri.endswith("/tfps:1")
    blobs = list(objects.client().list_blobs("bucket", prefix="staging/"))
    assert [f"gs://bucket/{blob.name}" for blob in blobs] == [path]
    assert blobs[0].download_as_bytes() == sdist.content


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--package", "{}/mine", "there is no pyproject.toml; name a project"),
        ("--staging_bucket", "", "needs --staging_bucket=gs://BUCKET/PATH"),
        ("--config", "other/model.py", "--config=other/model.py is not in the package mine-1.0"),
    ],
)
def test_a_package_that_would_not_start(vertex, vertex_submit, project, flag, value, message):
    given = {"--package": "{}", "--staging_bucket": "gs://bucket/staging"}
    own = {"--config": "mine/model.py", "--job_dir": "gs://bucket/run"}
    (own if flag in own else given)[flag] = value
    flags = [f"{name}={text.format(project)}" for name, text in given.items()]
    arguments = [f"{name}={text}" for name, text in own.items()]
    code, out, err = vertex_submit("--dry_run", *CLUSTER, *flags, "--", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_config_in_a_bucket_need_not_be_in_the_package(vertex, vertex_submit, project):
    flags = (*CLUSTER, f"--package={project}", "--staging_bucket=gs://bucket/staging")
    tasks = ("--config=/gcs/bucket/mine.py", "--job_dir=gs://bucket/run")
    code, _, err = vertex_submit("--dry_run", *flags, "--", *tasks)
    assert code == 0, err


def test_a_project_that_cannot_be_packed(project):
    (project / "pyproject.toml").write_text(PROJECT.replace('["mine"]', '["no_such"]'))
    with pytest.raises(UserError, match=r"packed: error: package directory 'no_such'"):
        Sdist.build(str(project))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gs://bucket/run", "the bucket lies in europe-west4, but this job runs in us-central1"),
        ("gs://absent/run", "there is no bucket 'absent'"),
    ],
)
def test_a_bucket_that_is_far_or_absent(cloud, vertex, vertex_submit, path, message):
    cloud.set(locations={"bucket": "EUROPE-WEST4"})
    arguments = ("--config=configs/smoke.py", f"--job_dir={path}")
    code, _, err = vertex_submit(*CLUSTER, "--", *arguments)
    assert code == 2
    assert message in err
    assert vertex.counts == {}


def test_the_projects_own_package_has_every_module():

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    for package in ("tfps", "trainer", "cloud", "configs"):
        found = {path.parent.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        assert {".".join(path.parts) for path in found} <= listed
