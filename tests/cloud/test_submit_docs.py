"""Every command of the pages about submitting, as far as no cloud is needed."""

import re
import shlex
import subprocess

import pytest
from google.cloud.aiplatform_v1.types import CustomJob

from cloud import submit
from cloud.tuning.study import Study
from tests.cloud.vertex.fake_vertex import FakeVertex
from tests.project import ROOT
from tfps import python_config

PAGES = ("README.md", "docs/submit.md", "docs/vertex.md")
PROGRAM = "python -m cloud.submit "
NUMBER = "1234567890123456789"


def blocks(page):
    return re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def commands():
    """Arguments of every complete command of the program on the pages."""
    text = "\n".join(block for page in PAGES for block in blocks(page)).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith(PROGRAM)]
    return [shlex.split(line.removeprefix(PROGRAM)) for line in lines if "…" not in line]


def is_submit(argv):
    return argv[0].startswith("--")


@pytest.mark.parametrize("argv", [x for x in commands() if is_submit(x)], ids=" ".join)
def test_what_is_submitted_can_be(argv, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert submit.main(["cloud.submit", "--dry_run", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "--config=configs/criteo.py" in out


@pytest.mark.parametrize("argv", [x for x in commands() if not is_submit(x)], ids=" ".join)
def test_verbs_do_what_the_pages_say(argv, capfd):
    with FakeVertex() as vertex:
        name = f"projects/my-project/locations/us-central1/customJobs/{NUMBER}"
        vertex.jobs[name] = CustomJob(
            name=name,
            display_name="criteo",
            state="JOB_STATE_RUNNING",
            labels={"tfps-submission": "x"},
        )
        own = (f"--vertex_endpoint={vertex.endpoint}", "--poll_seconds=0.02")
        assert submit.main(["cloud.submit", *argv, *own]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    said = {"cancel": f"{NUMBER}: asked to end", "follow": "[submit] criteo: SUCCEEDED"}
    assert said.get(argv[0], name) in out


def test_there_are_commands_of_every_kind():
    found = commands()
    assert len([argv for argv in found if is_submit(argv)]) >= 4
    assert {argv[0] for argv in found if not is_submit(argv)} == {
        *("follow", "cancel", "list", "describe")
    }


@pytest.mark.parametrize("page", PAGES)
def test_the_shell_understands_every_command(page):
    for block in blocks(page):
        done = subprocess.run(
            ["bash", "-n"], input=block, text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), block


def test_the_job_in_a_file_is_complete(tmp_path, capsys):
    code, search = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/submit.md").read_text(), re.DOTALL
    )
    (tmp_path / "mine_study.py").write_text(search)
    path = str(tmp_path / "mine_study.py")
    assert python_config.load(path, "--study", "get_study", Study).metric == "auc"
    (tmp_path / "ads.py").write_text(code)
    place = ("--target=vertex", "--project=my-project", "--region=us-central1", "--image=r/i")
    flags = (*place, f"--job={tmp_path}/ads.py", "--workers=2", "--dry_run")
    assert submit.main(["cloud.submit", *flags, "--", "--job_dir=gs://my-bucket/try"]) == 0
    assert "replicaCount: '2'\n" in capsys.readouterr().out
