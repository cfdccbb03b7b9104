"""Every command of the page about Vertex AI, one after the other, on the stand-ins."""

import re
import shlex

from absl import flags

from cloud.vertex.serving import target
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.project import ROOT

PROGRAM = "python -m cloud.deploy "
SECTION = re.search(
    r"^## Vertex AI\n(.*?)(?=^## |\Z)", (ROOT / "docs/deploy.md").read_text(), re.DOTALL | re.M
)[1]


def commands():
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in blocks.splitlines() if line.startswith(PROGRAM)]
    assert len(lines) > 5
    return [shlex.split(line.removeprefix(PROGRAM)) for line in lines]


def test_every_command_of_the_page_works(near, exported, serving, deploy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.json").write_text('[{"user": 7, "context": [0.5, 1]}]')
    for number in (2, 3):
        exported(number, job="runs/movies", graph=str(number).encode())
    verbs = []
    for argv in commands():
        given = [text.replace("my-bucket", "bucket") for text in argv]
        code, _, err = deploy(*given)
        assert (code, err) == (0, ""), argv
        verbs.append(argv[0] if not argv[0].startswith("--") else "deploy")
    assert set(verbs) == {
        *("deploy", "predict", "list", "describe", "undeploy"),
    }
    assert (serving.endpoints, len(serving.models["movies"])) == ({}, 2)


def test_every_flag_is_in_the_page():
    values = flags.FlagValues()
    target.define_flags(values)
    assert [flag for flag in values if f"--{flag}" not in SECTION] == []
