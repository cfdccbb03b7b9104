"""What is known of an exported model by its files alone."""

import dataclasses

import pytest

from cloud.deployment.served_model import ServedModel
from tests.cloud.deployment import exports
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tfps.errors import UserError


@pytest.fixture(name="job_dir", params=["local", "gs"])
def job_dir_fixture(request, tmp_path):
    """JOB_DIR with the versions 1, 2 and 10."""
    if request.param == "local":
        return str(exports.write(tmp_path / "job", 1, 2, 10, shards=2))
    request.getfixturevalue("cloud")
    return exports.upload("gs://bucket/runs/job", 1, 2, 10, shards=2)


def test_a_model_is_found_by_its_job_its_export_or_its_version(job_dir):
    newest = ServedModel.read(job_dir)
    assert (newest.base, newest.version, newest.versions) == (f"{job_dir}/export", 10, (1, 2, 10))
    assert newest.path == f"{job_dir}/export/10"
    assert newest.variables_bytes == 2000
    assert newest.has_warm_up
    assert [(x.name, x.dtype, x.shape) for x in newest.features] == [
        ("age", "float32", ()),
        ("ids", "int64", (2,)),
        ("town", "string", ()),
    ]
    assert newest.features[1].vocabulary_size == 10
    assert ServedModel.read(f"{job_dir}/export/") == newest
    second = dataclasses.replace(newest, version=2)
    assert ServedModel.read(job_dir, 2) == ServedModel.read(f"{job_dir}/export/2") == second


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    exports.write(tmp_path / "job", 1)
    monkeypatch.chdir(tmp_path)
    assert ServedModel.read("job").base == f"{tmp_path}/job/export"
    monkeypatch.chdir(tmp_path / "job" / "export" / "1")
    assert ServedModel.read(".").path == f"{tmp_path}/job/export/1"


@pytest.mark.parametrize(
    "missing",
    ["saved_model.pb", "schema.json", "variables/variables.index"]
    + [f"variables/variables.data-0000{k}-of-00003" for k in range(3)],
)
def test_a_version_that_lacks_a_file_is_refused_by_the_files_name(tmp_path, missing):
    job_dir = exports.write(tmp_path, 1, 2, shards=3)
    (job_dir / "export" / "2" / missing).unlink()
    for path in (job_dir, job_dir / "export" / "2"):
        with pytest.raises(UserError) as error:
            ServedModel.read(str(path))
        assert f"{job_dir}/export/2 is not whole: it has no {missing}" in str(error.value)
    assert ServedModel.read(str(job_dir), 1).version == 1


@pytest.mark.parametrize(
    "name",
    ["saved_model.pb", "variables/variables.index", "variables/variables.data-00001-of-00003"],
)
def test_a_file_that_is_cut_short_is_told_by_its_name_and_sizes(tmp_path, name):
    path = exports.write(tmp_path, 1, shards=3) / "export" / "1"
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[:-1])
    with pytest.raises(UserError) as error:
        ServedModel.read(str(tmp_path))
    assert (
        f"--model: {path} is not whole: {name} has {len(content) - 1:,} bytes, but "
        f"{len(content):,} were exported. If it is being copied, wait; else export"
        in str(error.value)
    )
    (path / name).write_bytes(content)
    assert ServedModel.read(str(tmp_path)).version == 1


def test_a_file_that_was_exported_and_is_not_there_is_told(tmp_path):
    path = exports.write(tmp_path, 1) / "export" / "1"
    (path / exports.WARM_UP).unlink()
    with pytest.raises(UserError, match=f"is not whole: it has no {exports.WARM_UP}"):
        ServedModel.read(str(tmp_path))


def test_what_no_server_takes_for_a_version_is_passed_over(tmp_path):
    job_dir = exports.write(tmp_path, 3)
    for name in ("refused", "4.tmp", "07", "-1", "1" * 30):
        (job_dir / "export" / name).mkdir()
    assert ServedModel.read(str(job_dir)).versions == (3,)


@pytest.mark.parametrize(
    ("path", "version", "message"),
    [
        ("job", 4, "--version=4: .*/job/export has the versions 1, 2; name one"),
        ("job/export/1", 2, "--model=.*/job/export/1 is version 1, but --version=2"),
        ("nothing", 0, "--model=.*/nothing has no numbered directory with an exported model"),
        ("job/export/1/schema.json", 0, "has no numbered directory with an exported model"),
        ("s3://bucket/job", 0, "models are read from disks and from gs://"),
    ],
)
def test_what_is_not_there(tmp_path, path, version, message):
    exports.write(tmp_path / "job", 1, 2)
    place = path if "://" in path else str(tmp_path / path)
    with pytest.raises(UserError, match=message):
        ServedModel.read(place, version)


def schema(**facts):
    return exports.files(**facts)["schema.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"[]", "has format None"),
        (b'{"format": 3}', "has format 3, but this version reads 2"),
        (b'{"format": 2}', "missing required field `features`; export the model again"),
        (schema(features=[]), r"at `\$\.features`; export the model again"),
        (schema(features=[{"name": 1}]), r"at `\$\.features\[0\]\.name`"),
        (
            schema(signatures={"serving_default": "rows"}),
            r"Invalid enum value 'rows' - at `\$\.signatures\[\.\.\.\]`",
        ),
        *(
            (schema(sizes=sizes), r"- at `\$\.sizes")
            for sizes in ([], {"saved_model.pb": -1}, {"saved_model.pb": "5"})
        ),
    ],
)
def test_a_schema_that_cannot_be_read_is_named(tmp_path, content, message):
    path = exports.write(tmp_path, 1) / "export/1/schema.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        ServedModel.read(str(tmp_path))
    assert str(path) in str(error.value)


def test_a_bucket_that_cannot_be_read_says_why(cloud):
    exports.upload("gs://bucket/closed", 1)
    cloud.set(permissions={"bucket": ()})
    with pytest.raises(UserError, match=r"grant their account roles/storage\.objectViewer"):
        ServedModel.read("gs://bucket/closed")
    cloud.set(permissions={})
    with pytest.raises(UserError, match="there is no bucket 'absent'"):
        ServedModel.read("gs://absent/job")


def test_a_bucket_that_is_busy_is_asked_again(cloud):
    exports.upload("gs://bucket/busy", 1)
    cloud.set(faults=(Fault("503", ("list", "read"), next=2),))
    assert ServedModel.read("gs://bucket/busy").version == 1
