"""The public names are said once: what is exported, typed, documented and tried as types is one list."""

import ast
import re
from pathlib import Path

import pytest

import yt_exactly_once
import yt_exactly_once.testing

ROOT = Path(__file__).parents[2]
PACKAGES = {
    yt_exactly_once: "tests/typing/api.py",
    yt_exactly_once.testing: "tests/typing/for_tests.py",
}
NAMES = [(package, name) for package in PACKAGES for name in sorted(package.__all__)]


def imported_from(path, package):
    """Return the names that a module imports from a package, with their modules."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            found |= {one.name: node.module for one in node.names}
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_is_exported(package):
    """An import that only a type checker reads must name the module that a program gets it from."""
    typed = imported_from(Path(package.__file__), f"{package.__name__}.")
    homes = {name: f"{package.__name__}.{home}" for name, home in package._MODULES.items()}
    assert typed == homes
    assert dir(package) == sorted(package.__all__)


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_public_name_is_there_and_has_a_docstring(package, name):
    """Each says what it promises."""
    assert getattr(package, name).__doc__


@pytest.mark.parametrize(("package", "path"), PACKAGES.items())
def test_every_public_name_is_tried_as_a_type(package, path):
    """mypy reads the file with the package."""
    assert sorted(imported_from(ROOT / path, package.__name__)) == sorted(package.__all__)


def test_every_public_name_is_on_the_page():
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.MULTILINE)) == sorted(
        name for _, name in NAMES
    )
