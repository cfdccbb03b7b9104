"""From a command to files, and from these to a container, whose engine is a stand-in here."""

import json
import os
import subprocess
import sys

import pytest

from cloud import deploy
from tests.cloud.deployment import exports
from tests.cloud.tfserving import protos
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401

DOCKER = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


@pytest.fixture(name="job_dir")
def job_dir_fixture(tmp_path):
    return exports.write(tmp_path / "runs" / "census", 1, 2, 3)


def run(*flags):
    return deploy.main(["deploy", "--target=tfserving", *flags])


def served(text):
    [model] = protos.models(text).model_config_list.config
    policy = model.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    return model.base_path, kind, list(policy.specific.versions), dict(model.version_labels)


def started(directory, tmp_path, **environ):
    """The arguments of docker that the script in a directory comes to."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), **environ}
    done = subprocess.run([directory / "start.sh"], env=own, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_files_start_a_server_of_this_machine_alone(job_dir, tmp_path, capsys):
    output = tmp_path / "serving"
    assert (
        run(f"--model={job_dir}", f"--output={output}", "--machine=cpus=2", "--machine=memory=2GiB")
        == 0
    )
    assert sorted(each.name for each in output.iterdir()) == [
        *("models.config", "monitoring.config", "start.sh")
    ]
    text = (output / "models.config").read_text()
    assert served(text) == ("/models/census", "latest", [], {})
    assert protos.monitoring((output / "monitoring.config").read_text()).prometheus_config.enable
    user = f"{os.getuid()}:{os.getgid()}"
    assert started(output, tmp_path) == [
        "run",
        "--name=census",
        "--rm",
        f"--user={user}",
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--cpus=2",
        "--memory=2147483648b",
        "--publish=127.0.0.1:8500:8500",
        "--publish=127.0.0.1:8501:8501",
        f'--mount=type=bind,"source={output}",target=/serving,readonly',
        f"--mount=type=bind,source={job_dir}/export,target=/models/census,readonly",
        "tensorflow/serving:2.20.0",
        "--model_config_file=/serving/models.config",
        "--monitoring_config_file=/serving/monitoring.config",
        "--model_config_file_poll_wait_seconds=30",
        "--allow_version_labels_for_unavailable_models=true",
        "--enable_model_warmup=true",
    ]
    said = capsys.readouterr().out
    assert f"start it with {output}/start.sh" in said
    assert "curl --fail-with-body http://127.0.0.1:8501/v1/models/census:predict" in said


def test_other_ports_another_image_and_batches(job_dir, tmp_path, capsys):
    output = tmp_path / "serving"
    flags = ("--image=registry.example.com/serving:1", "--max_batch_size=64", "--address=0.0.0.0")
    ports = ("--rest_port=80", "--grpc_port=90", "--name=adults")
    assert run(f"--model={job_dir}", f"--output={output}", *flags, *ports) == 0
    found = started(output, tmp_path)
    assert {"--publish=0.0.0.0:90:8500", "--publish=0.0.0.0:80:8501", "--name=adults"} <= {*found}
    assert "registry.example.com/serving:1" in found
    assert "--enable_batching=true" in found
    assert "--batching_parameters_file=/serving/batching.config" in found
    batching = protos.batching((output / "batching.config").read_text())
    assert batching.max_batch_size.value == 64
    said = capsys.readouterr().out
    assert "--address=0.0.0.0: the server asks for no credentials" in said
    assert "http://0.0.0.0:80/v1/models/adults:predict" in said


def test_an_address_of_ipv6(job_dir, tmp_path, capsys):
    output = tmp_path / "serving"
    assert run(f"--model={job_dir}", f"--output={output}", "--address=::1") == 0
    assert "--publish=[::1]:8501:8501" in started(output, tmp_path)
    assert "http://[::1]:8501/v1/models/census:predict" in capsys.readouterr().out


def test_a_model_in_a_bucket_is_read_there_with_the_users_own_credentials(cloud, tmp_path):
    exports.upload("gs://bucket/runs/census", 1)
    output = tmp_path / "serving"
    assert run("--model=gs://bucket/runs/census", f"--output={output}") == 0
    text = (output / "models.config").read_text()
    assert served(text) == ("gs://bucket/runs/census/export", "latest", [], {})
    assert not any("credentials" in text.lower() for text in started(output, tmp_path))
    key = tmp_path / "key, of mine.json"
    key.write_text("{}")
    found = started(output, tmp_path, GOOGLE_APPLICATION_CREDENTIALS=str(key))
    assert f'--mount=type=bind,"source={key}",target=/credentials.json,readonly' in found
    assert "--env=GOOGLE_APPLICATION_CREDENTIALS=/credentials.json" in found
    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    found = started(output, tmp_path)
    assert f'--mount=type=bind,"source={login}",target=/credentials.json,readonly' in found


def test_odd_paths_reach_the_container_as_they_are(tmp_path):
    job_dir = exports.write(tmp_path / 'a "b", $(c)' / "job", 1)
    output = tmp_path / "out, 'put'"
    assert run(f"--model={job_dir}", f"--output={output}") == 0
    found = started(output, tmp_path)
    quoted = str(job_dir).replace('"', '""')
    assert f'--mount=type=bind,"source={quoted}/export",target=/models/job,readonly' in found
    assert f'--mount=type=bind,"source={output}",target=/serving,readonly' in found


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ((), ("latest", [], {})),
        (("--version=2",), ("specific", [2], {})),
        (("--version_policy=all",), ("all", [], {})),
        (
            ("--version=3", "--version_label=stable=2", "--version_label=canary=3"),
            ("specific", [2, 3], {"stable": 2, "canary": 3}),
        ),
        (("--version_label=newest=3",), ("latest", [], {"newest": 3})),
        (("--version_policy=specific",), ("specific", [3], {})),
    ],
)
def test_versions(job_dir, capsys, flags, wanted):
    assert run(f"--model={job_dir}", "--dry_run", *flags) == 0
    models, *_ = capsys.readouterr().out.split("---\n")
    assert served(models)[1:] == wanted


def test_a_second_deploy_changes_what_a_running_server_reads(job_dir, tmp_path):
    output = tmp_path / "serving"
    assert run(f"--model={job_dir}", f"--output={output}", "--version=2") == 0
    exports.write(job_dir, 4)
    assert run(f"--model={job_dir}", f"--output={output}", "--version=4") == 0
    assert served((output / "models.config").read_text())[1:] == ("specific", [4], {})
    assert not [each.name for each in output.iterdir() if each.name.endswith(".tmp")]


def test_a_dry_run_shows_every_file_and_writes_none(job_dir, tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    assert run(f"--model={job_dir}", "--dry_run", f"--output={tmp_path}/serving") == 0
    shown = capsys.readouterr().out.split("---\n")
    assert [text.splitlines()[0] for text in shown] == [
        *("# models.config", "# monitoring.config", "# start.sh")
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_who_lacks_requests_to_warm_up_is_told(job_dir, tmp_path, capsys):
    version = job_dir / "export" / "3"
    (version / exports.WARM_UP).unlink()
    schema = json.loads((version / "schema.json").read_text())
    del schema["sizes"][exports.WARM_UP]  # it was exported without
    (version / "schema.json").write_text(json.dumps(schema))
    assert run(f"--model={job_dir}", f"--output={tmp_path}/serving") == 0
    assert "export/3 has no requests to warm it up" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["local", "gs"])
def test_the_script_is_good_bash(job_dir, tmp_path, place, request):
    model = str(job_dir)
    if place == "gs":
        request.getfixturevalue("cloud")
        model = exports.upload("gs://bucket/runs/other", 1)
    assert run(f"--model={model}", f"--output={tmp_path}/serving") == 0
    program = os.path.join(os.path.dirname(sys.executable), "shellcheck")
    done = subprocess.run([program, f"{tmp_path}/serving/start.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--output is missing; name a directory for the files, or give --dry_run"),
        (
            ("--dry_run", "--machine=type=n2"),
            "takes no --machine=type: the server runs on this machine",
        ),
        (
            ("--dry_run", "--machine=accelerator=gpu:1"),
            "takes no --machine=accelerator: add --gpus=all",
        ),
        (("--dry_run", "--service_account=x"), "takes no --service_account"),
        (("--dry_run", "--label=a=b"), "takes no --label: containers are found by their --name"),
        (("--dry_run", "--max_replicas=2"), "--target=tfserving is one server"),
        (("--dry_run", "--address=localhost"), "--address=localhost: write an IP address"),
        (("--dry_run", "--rest_port=8500"), "--rest_port and --grpc_port are both 8500"),
        (("--dry_run", "--machine=memory=100MiB"), "--machine=memory=100 MiB: 2 versions of "),
        (
            ("--dry_run", "--version=1", "--version_policy=latest"),
            "--version=1: with --version_policy=latest version 3 is served",
        ),
        (("--dry_run", "--version_label=a=9"), "--version_label=a=9: "),
        (("--dry_run", "--version_label=a=2"), "with --version_policy=latest only version 3"),
        (("--dry_run", "--version_label=a=x"), "--version_label=a=x: write a whole number"),
        (("--output=/dev/null/x",), "--output=/dev/null/x: /dev/null"),
    ],
)
def test_what_is_refused(job_dir, capsys, flags, message):
    assert run(f"--model={job_dir}", *flags) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert message in error
