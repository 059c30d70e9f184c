"""The page of breaks has a line for each; the test that makes the break compares it.

With `YT_EXACTLY_ONCE_BREAKS=write` the tests write their lines, and a new one at the end of its table.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.local.operated import Operated

PAGE = Path(__file__).parent.parent / "docs/measured/breaks.md"
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b|(?<=robot-)[0-9a-f]{8}")


def require_line(table: str, broken: str, query: Operated, outcome: str) -> None:
    """Compare what a break has led to with its line.

    Args:
        table: title of its table.
        broken: its name.
        query: what was broken.
        outcome: of the rows.
    """
    is_refused = outcome.startswith("refused")
    done = "; ".join(dict.fromkeys(query.done)) or (
        "a person decides" if is_refused else "start again"
    )
    for place, name in ((query.folder, "//home/shop"), (str(query.checkpoint), "CHECKPOINT")):
        done = done.replace(place, name)
    said = ", ".join(f"`{name}`" for name in dict.fromkeys(query.said)) or "-"
    seen = ["yes" if tool in query.seen else "-" for tool in ("doctor", "status")]
    line = f"| {broken} | {said} | {' | '.join(seen)} | {_ID.sub('ID', done)} | {outcome} |"
    if os.environ.get("YT_EXACTLY_ONCE_BREAKS") == "write":
        _write(table, broken, line)
    assert line in PAGE.read_text().splitlines(), line


def _write(table: str, broken: str, line: str) -> None:
    lines = PAGE.read_text().splitlines()
    found = [number for number, old in enumerate(lines) if old.startswith(f"| {broken} |")]
    if found:
        lines[found[0]] = line
    else:
        begin = lines.index(f"## {table}")
        rows = [number for number, old in enumerate(lines) if old.startswith("|")]
        rows = [number for number in rows if number > begin]
        last = next(number for number in rows if number + 1 not in rows)
        lines.insert(last + 1, line)
    PAGE.write_text("\n".join(lines) + "\n")
