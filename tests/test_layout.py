"""The layout of the package: folders only, small modules, and a test file for each."""

import ast
import re
from pathlib import Path

import pytest

import debayes

PACKAGE = Path(debayes.__file__).parent
TESTS = Path(__file__).parent
MODULES = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix()
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py"
)


def test_the_package_holds_folders() -> None:
    """Nothing else beside its entry points and the mark of its annotations."""
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_tests(module: str) -> None:
    """In the file of its name, or in the one that its docstring names."""
    text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    elsewhere = re.search(r"Tested in tests/([\w/]+\.py)\.", ast.get_docstring(ast.parse(text)) or "")
    folder, name = (TESTS / module).parent, Path(module).name
    assert (TESTS / elsewhere.group(1) if elsewhere else folder / f"test_{name}.py").is_file()


@pytest.mark.parametrize("path", sorted(TESTS.glob("*/**/test_*.py")), ids=lambda path: path.stem)
def test_every_test_file_has_a_module(path: Path) -> None:
    """Except the tests of commands from end to end, and those of the documentation."""
    folder = path.parent.relative_to(TESTS).as_posix()
    assert folder in ("cli", "docs") or f"{folder}/{path.stem.removeprefix('test_')}" in MODULES
