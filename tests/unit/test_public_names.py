"""The public names are said once: what is exported, typed, documented and tried as types is one list."""

import ast
import re
from pathlib import Path

import pytest

import yt_exactly_once

ROOT = Path(__file__).parents[2]
NAMES = sorted(yt_exactly_once.__all__)


def imported_from(path, package):
    """Return the names that a module imports from a package, with their modules."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            found |= {one.name: node.module for one in node.names}
    return found


def test_type_checkers_see_what_is_exported():
    """An import that only a type checker reads must name the module that a program gets it from."""
    typed = imported_from(Path(yt_exactly_once.__file__), "yt_exactly_once.")
    homes = {name: f"yt_exactly_once.{home}" for name, home in yt_exactly_once._MODULES.items()}
    assert typed == homes
    assert dir(yt_exactly_once) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_public_name_is_there_and_has_a_docstring(name):
    """Each says what it promises."""
    assert getattr(yt_exactly_once, name).__doc__


def test_every_public_name_is_tried_as_a_type():
    """mypy reads the file with the package."""
    assert sorted(imported_from(ROOT / "tests/typing/api.py", "yt_exactly_once")) == NAMES


def test_every_public_name_is_on_the_page():
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.MULTILINE)) == NAMES
