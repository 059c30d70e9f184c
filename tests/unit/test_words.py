"""One word for one idea: the table in the glossary, held by the names in the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import yt_exactly_once

PACKAGE = Path(yt_exactly_once.__file__).parent
GLOSSARY = Path(__file__).parents[2] / "docs/glossary.md"

PARTS = ("commit", "spark/engine")
"""The rooms that know parts of a batch."""


def refused() -> set[str]:
    """Return the last column of the table."""
    _, _, table = GLOSSARY.read_text(encoding="utf-8").partition("## Words of the code")
    rows = re.findall(r"^\|.*\|.*\|(.*)\|$", table, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def names(source: str) -> Iterator[str]:
    """Yield what a module names itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def has(name: str, word: str) -> bool:
    """Whether a name has a word: `on_lane` and `OldLane` have `lane`; several words are a whole name."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_")
    return words == word if "_" in word else word in words.split("_")


def misnamed(source: str, words: set[str]) -> list[str]:
    """Return the names that have a word which is refused."""
    return [name for name in names(source) if any(has(name, word) for word in words)]


MODULES = {
    path.relative_to(PACKAGE).as_posix(): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] != "local"
}


def test_no_name_has_a_word_that_the_glossary_refuses() -> None:
    words = refused()
    assert {"lane", "place", "told"} <= words

    found = {
        name: wrong
        for name, path in MODULES.items()
        if (wrong := misnamed(path.read_text(encoding="utf-8"), words))
    }
    assert found == {}


def test_only_the_rooms_of_a_split_batch_know_parts() -> None:
    found = {
        name: wrong
        for name, path in MODULES.items()
        if (wrong := misnamed(path.read_text(encoding="utf-8"), {"part", "parts"}))
    }
    assert {name for name in found if not name.startswith(PARTS)} == set()
    assert found


@pytest.mark.parametrize(
    "source",
    [
        "def f(lane): pass",
        "on_lane = 1",
        "class OldLane: pass",
        "self._lane = 1",
        "import x as lane",
        "for lane, _ in rows: pass",
        "rows = [lane for lane in rows]",
        "match x:\n    case [*_] as lane: pass",
    ],
)
def test_every_way_to_name_something_is_seen(source: str) -> None:
    assert misnamed(source, {"lane"})
    assert not misnamed(source.replace("lane", "plane").replace("Lane", "Plane"), {"lane"})


def test_no_docstring_only_points_to_another_one() -> None:
    found = [name for name, path in MODULES.items() if '"""See `' in path.read_text("utf-8")]
    assert found == []
