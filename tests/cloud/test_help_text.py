import subprocess
import sys

import pytest
from absl import flags

from cloud.help_text import help_text
from tests.project import ROOT

PROGRAMS = [
    f"{path.parent.name}.{path.stem}"
    for path in sorted([*(ROOT / "trainer").glob("*.py"), *(ROOT / "cloud").glob("*.py")])
    if 'if __name__ == "__main__"' in path.read_text() and path.stem != "probe"  # which takes none
]


def test_flags_come_in_groups_and_what_is_needed_comes_first() -> None:
    values = flags.FlagValues()
    flags.DEFINE_string("data", None, "What to read.", required=True, flag_values=values)
    flags.DEFINE_integer("speed", 3, "How fast.", flag_values=values)
    flags.DEFINE_enum("form", None, ["a", "b"], "How.", flag_values=values)
    flags.DEFINE_multi_string("label", [], "Any number.", flag_values=values)
    flags.DEFINE_boolean("dry", False, "Nothing.", flag_values=values)
    found = [values[name] for name in values]
    assert help_text("What it is.\n", found, {"Before": ["data", "dry"]}).splitlines() == [
        "What it is.",
        "",
        "needed:",
        "  --data: What to read.",
        "",
        "Before:",
        "  --[no]dry: Nothing.",
        "    (default: 'false')",
        "",
        "others:",
        "  --form: <a|b>: How.",
        "  --label: Any number.",
        "  --speed: How fast.",
        "    (default: '3')",
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_of_a_program_loads_no_tensorflow(program: str) -> None:
    code = (
        "import runpy, sys; sys.argv = [sys.argv[1], '--help']\n"
        "try: runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n  --" in done.stdout
    assert str(ROOT) not in done.stdout
