import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks/README.md"]


def python(module, *flags, cwd):
    command = [sys.executable, "-m", module, *flags]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_model_of_the_readme_is_complete_and_trains(tmp_path):
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) < 60
    (tmp_path / "mine.py").write_text(code)
    sizes = ("--set=task.users=50", "--set=task.movies=40")
    made = python(
        "trainer.generate",
        *("--config=mine.py", "--records=300", "--shards=2", "--output=data/mine", *sizes),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    trained = python(
        "trainer.task",
        *("--mode=local", "--config=mine.py", "--train_data=data/mine", "--eval_data=data/mine"),
        *("--job_dir=runs/mine", *sizes),
        cwd=tmp_path,
    )
    assert trained.returncode == 0, trained.stderr
    assert "evaluation after epoch 2" in trained.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_commands_of_the_readme_name_modules_and_flags_that_exist():
    text = (ROOT / "README.md").read_text()
    modules = set(re.findall(r"python -m ([a-z_.]+)", text))
    assert {"trainer.prepare", "trainer.predict", "cloud.local"} <= modules
    flags = {}
    for module in modules:
        helped = python(module, "--help", cwd=ROOT)
        flags[module] = helped.stdout + helped.stderr
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for command in re.sub(r"\\\n", " ", block).splitlines():
            found = re.match(r"python -m (\S+) (.*)", command)
            if not found:
                continue
            own, _, passed_on = found[2].partition(" -- ")
            for module, words in ((found[1], own), ("trainer.task", passed_on)):
                for flag in re.findall(r"--([a-z_]+)", words):
                    assert f"--{flag}" in flags[module] or f"--[no]{flag}" in flags[module], flag
