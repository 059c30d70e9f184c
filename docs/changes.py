"""Changes of the next version: a file each in `docs/changes`, and their way into the changelog.

A file has the lines of one change, as a list for readers, with links as from `docs`. Its name begins with
the section: `writing-...`, see `SECTIONS`. Usage: `python docs/changes.py 0.2.0 2026-12-24` writes a version
and its date above the earlier ones, and removes the files.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
FOLDER = DOCS / "changes"
CHANGELOG = DOCS / "changelog.md"
MARK = "<!-- versions, the newest first -->\n"

SECTIONS = {
    "breaking": "What you must change",
    "writing": "Writing",
    "reading": "Reading",
    "operating": "Operating",
    "testing": "Testing, and the embedded cluster",
    "docs": "Documentation and packaging",
}


def files() -> list[Path]:
    """Return the files of all changes, in the order of their names."""
    return sorted(FOLDER.glob("*.md"))


def section_of(file: Path) -> str:
    """Return the section of a change; raise `ValueError` if its name begins with none."""
    name, _, rest = file.stem.partition("-")
    if name not in SECTIONS or not rest:
        raise ValueError(f"{file.name} must begin with one of {', '.join(SECTIONS)}, and a word")
    return name


def version(title: str) -> str:
    """Return the text of a version with all changes; empty without any."""
    lines = []
    for name, heading in SECTIONS.items():
        found = [
            file.read_text(encoding="utf-8").rstrip()
            for file in files()
            if section_of(file) == name
        ]
        if found:
            lines += [f"### {heading}", "", *found, ""]
    return "\n".join([f"## {title}", "", *lines, ""]) if lines else ""


def changelog(title: str) -> str:
    """Return the changelog with the changes of `docs/changes` as its newest version."""
    return CHANGELOG.read_text(encoding="utf-8").replace(MARK, f"{MARK}\n{version(title)}", 1)


def main() -> None:
    """Move the changes into the changelog."""
    number, day = sys.argv[1:]
    CHANGELOG.write_text(changelog(f"{number}, {day}"), encoding="utf-8")
    for file in files():
        file.unlink()


if __name__ == "__main__":
    main()
