"""The pages: their index, their links, and what they say of flags and fields."""

import dataclasses
import re

import pytest

import tfps
from tests.loaded import client
from tests.make_commands import would_run
from tests.project import ROOT
from tfps.experiment.mode import MODES
from trainer.flags.groups import GROUPS

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*ROOT.glob("*.md"), *DOCS, ROOT / "benchmarks/README.md"]
# Modules that people run, and that tell of their flags; benchmarks are for those who measure.
MODULE = r"python -m ((?:trainer|cloud)\.(?!probe)\w+)"


def headings_of(text):
    """As links name them."""
    return {
        re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def commands_of(text):
    """Every command of a page that runs a module, in a block or within a sentence."""
    code = re.findall(r"```sh\n(.*?)```|^((?: {4}.*\n)+)|`([^`]+)`", text, re.DOTALL | re.MULTILINE)
    lines = re.sub(r"\\\n", " ", "\n".join(part for parts in code for part in parts)).splitlines()
    return [found for line in lines if (found := re.match(rf"\s*{MODULE}(.*)", line))]


@pytest.fixture(scope="module")
def help_of():
    """What each module that a page runs prints with --help."""
    found = {command[1] for page in PAGES for command in commands_of(page.read_text())}
    return {module: whole_help(module) for module in {*found, "trainer.task"}}


def whole_help(module):
    """What --help prints, for every target where there are some."""
    text = client.run(module, "--help").stdout
    targets = re.findall(r"the flags of that target too: (.*)\.$", text, re.MULTILINE)
    several = targets[0].split(", ") if targets else []
    return text + "".join(
        client.run(module, f"--target={each}", "--help").stdout for each in several
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, heading = target.partition("#")
        if not target.startswith("https://"):
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not heading or heading in headings_of(linked.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    rooms = "tfps|trainer|cloud|tests|benchmarks|docker"
    named = re.findall(rf"(?<![\w/])((?:{rooms})/[\w/]+\.\w+)", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_index_names_every_page_once():
    index = (ROOT / "docs/README.md").read_text()
    named = re.findall(r"^- \[(\w+\.md)\]\(\1\): ", index, re.MULTILINE)
    assert sorted(named) == [page.name for page in DOCS if page.name != "README.md"]


def test_every_picture_is_shown():
    texts = "".join(page.read_text() for page in PAGES)
    shown = {target.removeprefix("docs/") for target in re.findall(r"!\[[^]]+\]\((.*?)\)", texts)}
    pictures = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".png", ".svg")}
    assert shown == pictures


def test_commands_name_modules_and_flags_that_exist(help_of):
    commands = [command for page in PAGES for command in commands_of(page.read_text())]
    ran = {command[1] for command in commands}
    assert {"trainer.prepare", "trainer.predict", "cloud.local", "cloud.submit"} <= ran
    for command in commands:
        [(_, deployed)] = re.findall(r"--deploy_to=(['\"])(.*?)\1", command[2]) or [("", "")]
        own, _, passed_on = command[2].replace(deployed, "").partition(" -- ")
        given = ((command[1], own), ("trainer.task", passed_on), ("cloud.deploy", deployed))
        for module, words in given:
            for flag in re.findall(r"--([a-z_.]+)", words):
                flags = help_of[module]
                if "." in flag:
                    assert "--train.batch_size=512" in flags, (flag, command[0])
                    assert flag.startswith("task.") or flag in FIELDS, (flag, command[0])
                    continue
                assert re.search(rf"--(\[no\])?{flag}\b", flags), (flag, command[0])


PARTS = [("data", tfps.Data()), ("train", tfps.Train())]
FIELDS = {"mode.name": ""} | {
    f"{part}.{field.name}": str(getattr(settings, field.name)).lower().removesuffix(".0")
    for part, settings in [*PARTS, *(("mode", kind()) for kind in MODES.values())]
    for field in dataclasses.fields(settings)
}


def rows_of_flags_and_fields():
    """First two cells of each row of docs/flags.md: the names, and the default."""
    text = (ROOT / "docs/flags.md").read_text()
    cells = re.findall(r"^\| (`.*?`) \|(.*?)\| .* \|$", text, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", names), default.strip()) for names, default in cells]


def test_every_flag_of_a_task_is_explained_with_its_default(help_of):
    told = {
        name.removeprefix("--"): default
        for names, default in rows_of_flags_and_fields()
        for name in names
        if name.startswith("--")
    }
    described = re.split(r"^  --", help_of["trainer.task"], flags=re.MULTILINE)[1:]
    defaults = {}
    for text in described:
        default = re.search(r"\(default: '?(.*?)'?\)$", text, re.MULTILINE)
        value = default[1].removesuffix(".0") if default else ""
        defaults[text.partition(":")[0]] = "" if value == "[]" else value
    assert told == defaults


def test_the_help_of_a_task_has_the_titles_of_the_page():
    sections = re.split(r"^## ", (ROOT / "docs/flags.md").read_text(), flags=re.MULTILINE)[1:]
    told = {
        section.partition("\n")[0]: tuple(
            name
            for row in re.findall(r"^\| (`--.*?`) \|", section, re.MULTILINE)
            for name in re.findall(r"`--(?:\[no\])?(\w+)`", row)
        )
        for section in sections
    }
    assert {title: names for title, names in told.items() if names} == GROUPS


def test_every_field_of_an_experiment_is_explained_with_its_default():
    told = {
        name: default
        for names, default in rows_of_flags_and_fields()
        for name in names
        if not name.startswith("--")
    }
    assert told == FIELDS


def test_the_picture_of_the_demo_shows_its_commands():
    commands = re.search(r"^rm -rf runs/demo\n(.*)", would_run("demo"), re.DOTALL | re.MULTILINE)[0]
    picture = re.sub(r"&#160;|\s+", " ", (ROOT / "docs/demo.svg").read_text())
    for line in commands.splitlines():
        assert re.sub(r"\s+", " ", line) in picture, line
