"""Builds the documentation as a site: `python -m sphinx -n -W docs docs/_build`."""

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import changes

project = "yt_exactly_once"
author = "the authors of yt_exactly_once"
copyright = "2026, " + author  # noqa: A001 - the name that Sphinx reads
release = version = importlib.metadata.version("yt-exactly-once")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "changes/*"]

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]

# Headings get anchors, so that one page can link to a section of another.
myst_heading_anchors = 3

# Docstrings are written for people who read the source: `name` is code, and types are plain words.
default_role = "code"
nitpick_ignore_regex = [("py:(class|exc)", r"([a-z]\w*\.)*[A-Za-z]\w+")]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False


def setup(app: Any) -> None:
    """Connect what Sphinx calls."""
    app.connect("autodoc-process-docstring", _close_code)
    app.connect("source-read", _show_changes)


def _show_changes(_app: Any, name: str, content: list[str]) -> None:
    """Let the changelog begin with what the next version will have."""
    if name == "changelog":
        content[0] = changes.changelog("Next version")


def _close_code(
    _app: Any, _what: Any, _name: Any, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Let code end in the middle of a word, as in `Target`s, which reStructuredText has no short form for."""
    lines[:] = [re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line) for line in lines]
