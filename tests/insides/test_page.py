"""docs/tensorflow_insides.md, the canaries and the code name the same things."""

import ast
import inspect
import pathlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tests.project import ROOT

PAGE = (ROOT / "docs/tensorflow_insides.md").read_text()
MODULES = [path for room in ("tfps", "trainer", "cloud") for path in (ROOT / room).rglob("*.py")]
TREES = {path: ast.parse(path.read_text()) for path in MODULES}
INSIDE = re.compile(
    r"tensorflow\.(python|core|compiler|tsl|_api)\b|keras\.src\b|tensorflow\.\w*internal"
)
ENVIRONMENT = re.compile(r"(TF|GRPC|GCS|CUDA|KERAS|XLA|NCCL)_[A-Z0-9_]+")
PATCHES = ROOT / "tfps/model/keras_patches.py"
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields"}


def names_of_canaries() -> set[str]:
    found = set()
    for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
        if path.name == "test_page.py":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(node.name.removeprefix("test_"))
    return found | {"raw_ops_arguments", "names_called_experimental"}  # they read the code


def dotted(node: ast.AST) -> str:
    """An expression such as `tf.raw_ops.SaveV2` as text; "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    before = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""


def nodes(kind: type[ast.AST]) -> Iterator[tuple[pathlib.Path, ast.AST]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, kind):
                yield path, node


def test_the_page_and_the_canaries_name_the_same() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == names_of_canaries()


def test_the_page_names_modules_that_there_are() -> None:
    for path in re.findall(r"`((?:tfps|trainer|cloud|tests)/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path


def test_no_private_module_is_imported_that_the_page_does_not_name() -> None:
    for path, node in [*nodes(ast.Import), *nodes(ast.ImportFrom)]:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            if INSIDE.match(name):
                place = path.relative_to(ROOT)
                assert f"`{place}`: `{name}`" in PAGE, f"{place} imports {name}"


def test_no_private_name_is_used_that_the_page_does_not_name() -> None:
    """Names that begin with `_`, of objects whose class is not in the same module."""
    for path, node in nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        private = node.attr.startswith("_") and not node.attr.startswith("__")
        if not private or node.attr in OF_NAMED_TUPLES or dotted(node) == "os._exit":
            continue
        text = path.read_text()
        own = re.search(rf"(self\.|cls\.|def |^ {{4}}){node.attr}\b", text, re.MULTILINE)
        place = path.relative_to(ROOT)
        assert own or f"`{place}`: `{node.attr}`" in PAGE, f"{place} uses {dotted(node)}"


def test_no_internal_name_is_reached_through_a_public_one() -> None:
    for path, node in nodes(ast.Attribute):
        assert "__internal__" not in dotted(node), f"{path}: {dotted(node)}"


def test_what_is_replaced_for_a_model_is_replaced_in_one_module() -> None:
    """And is named by the page."""
    replaced = {
        node.attr
        for path, node in nodes(ast.Attribute)
        if isinstance(node, ast.Attribute) and path == PATCHES and isinstance(node.ctx, ast.Store)
    }
    assert len(replaced) > 5
    for name in replaced:
        assert re.search(rf"`{PATCHES.relative_to(ROOT)}`: [^|]*`(\w+\.)?{name}`", PAGE), name
    for path, node in nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if path != PATCHES and isinstance(node.ctx, ast.Store) and node.attr in replaced:
            assert dotted(node.value) == "self", f"{path}: {dotted(node)} is replaced"


def test_nothing_is_replaced_by_a_name_that_the_page_does_not_name() -> None:
    """But for what a class of the project's own replaces in itself."""
    for path, node in nodes(ast.Call):
        assert isinstance(node, ast.Call)
        if dotted(node.func) == "setattr" and dotted(node.args[0]) != "cls":
            assert f"`{path.relative_to(ROOT)}`: " in PAGE, f"{path} calls setattr"


def test_no_variable_of_the_environment_is_used_that_the_page_does_not_name() -> None:
    for path, node in nodes(ast.Constant):
        value = node.value
        if isinstance(value, str) and ENVIRONMENT.fullmatch(value):
            family = f"{value.split('_')[0]}_*"
            named = f"`{value}`" in PAGE or f"`{family}`" in PAGE
            assert named, f"{path.relative_to(ROOT)} names {value}"


def test_raw_ops_arguments() -> None:
    """Every kernel that is called by name is there, with the arguments that it is given.

    Those that `UpdateRule.kernel` calls are named without arguments; every training calls them.
    """
    found = set()
    for _, node in nodes(ast.Attribute):
        if (name := dotted(node)).startswith("tf.raw_ops."):
            found.add(name.removeprefix("tf.raw_ops."))
            assert hasattr(tf.raw_ops, name.removeprefix("tf.raw_ops."))
    for path, node in nodes(ast.Call):
        assert isinstance(node, ast.Call)
        name = dotted(node.func)
        if not name.startswith("tf.raw_ops."):
            continue
        kernel = name.removeprefix("tf.raw_ops.")
        parameters = inspect.signature(getattr(tf.raw_ops, kernel)).parameters
        for given in node.keywords:
            assert given.arg is None or given.arg in parameters, f"{path}: {kernel}({given.arg}=)"
    listed = re.search(
        r"^Kernels that are called by name: (.*?)\.$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert listed
    assert found == set(re.findall(r"`(\w+)`", listed[1]))


def test_names_called_experimental() -> None:
    for path, node in nodes(ast.Attribute):
        name = dotted(node)
        if name.startswith("tf.") and ("experimental" in name or "compat" in name):
            there = tf
            for part in name.split(".")[1:]:
                assert hasattr(there, part), f"{path}: {name}"
                there = getattr(there, part)
