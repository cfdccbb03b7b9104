import logging
import time

import pytest

from tests.local_cloud.cloud_fixture import (  # noqa: F401
    cloud_fixture,
    each_cloud_process_fixture,
    forget_credentials,
)
from tests.local_cloud.settings import Fault
from tfps.errors import UserError
from tfps.storage.objects import REGION_VARIABLE, Use, check

READ = ("storage.objects.get", "storage.objects.list")
USES = [Use("--data.train", "gs://bucket/data"), Use("--job_dir", "gs://bucket/job", writes=True)]


def refusal(uses=USES):
    began = time.monotonic()
    with pytest.raises(UserError) as refused:
        check(uses)
    assert time.monotonic() - began < 30
    return str(refused.value)


@pytest.fixture(name="fresh")
def fresh_fixture(cloud):
    forget_credentials()
    yield cloud
    forget_credentials()


def test_each_bucket_is_asked_once(fresh):
    check([*USES, Use("--data.eval", ""), Use("--config", "configs/smoke.py")])
    assert fresh.counted()["requests"]["permissions"] == 1


def test_local_paths_need_no_credentials(monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/absent")
    check([Use("--data.train", "/data"), Use("--job_dir", "job", writes=True)])


def test_missing_credentials(fresh, monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert refusal().startswith(
        "--job_dir=gs://bucket/job: there are no Google Cloud credentials; run `gcloud auth "
        "application-default login`"
    )


def test_a_key_file_that_is_not_there(fresh, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/absent/key.json")
    assert "there are no Google Cloud credentials" in refusal()


def test_refused_credentials(fresh):
    fresh.set(faults=(Fault("401", fraction=1.0),))
    assert "--job_dir=gs://bucket/job: Google Cloud refuses the credentials; get new" in refusal()


def test_credentials_that_tensorflow_cannot_use(fresh, monkeypatch, tmp_path):
    key = tmp_path / "external.json"
    key.write_text(
        '{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": '
        '"https://sts.googleapis.com/v1/token", "credential_source": {"file": "/absent"}}'
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    assert "TensorFlow's gs:// client cannot use credentials of the kind google.auth" in refusal()


def test_a_bucket_that_does_not_exist(fresh):
    message = refusal([Use("--output", "gs://absent/data", writes=True)])
    assert "--output=gs://absent/data: there is no bucket 'absent'; correct the name" in message
    assert "names no bucket" in refusal([Use("--data", "gs:///x")])


def test_permissions_that_are_lacking(fresh):
    fresh.set(permissions={"bucket": READ})
    check(USES[:1])
    assert refusal() == (
        "--job_dir=gs://bucket/job: the credentials lack storage.objects.create, "
        "storage.objects.delete on the bucket 'bucket'; grant their account "
        "roles/storage.objectAdmin there"
    )
    fresh.set(permissions={"bucket": ()})
    assert "lack storage.objects.get, storage.objects.list" in refusal(USES[:1])


@pytest.mark.parametrize(
    ("location", "region", "is_far"),
    [
        ("US-CENTRAL1", "us-central1", False),
        ("US", "us-east4", False),
        ("EU", "us-central1", True),
        ("EUROPE-WEST4", "us-central1", True),
    ],
)
def test_a_bucket_far_away_is_warned_of(fresh, monkeypatch, caplog, location, region, is_far):
    fresh.set(locations={"bucket": location})
    monkeypatch.setenv(REGION_VARIABLE, region)
    with caplog.at_level(logging.WARNING):
        check(USES)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == is_far
    assert all(f"lies in {location.lower()}, but this job runs in {region}" in x for x in told)


def test_an_unknown_location_is_not_warned_of(fresh, monkeypatch, caplog):
    objects = [*READ, "storage.objects.create", "storage.objects.delete"]
    fresh.set(permissions={"bucket": objects})  # but not storage.buckets.get
    monkeypatch.setenv(REGION_VARIABLE, "us-central1")
    with caplog.at_level(logging.WARNING):
        check(USES)
    assert not caplog.records
