"""The tables of `docs/measured/results.md`, each written by the benchmark that measures it with `--page`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.modes.machine import stamp

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "results.md"


def rig() -> str:
    """Return when, where and with which versions this run is."""
    told = stamp()
    day = told.pop("time").partition("T")[0]
    return f"{day}: " + ", ".join(
        f"{name} {value}" for name, value in told.items() if value != "absent"
    )


def put(name: str, lines: Iterable[str], page: Path = PAGE) -> None:
    """Replace what the page has between the marks of a table.

    Raises:
        ValueError: the page has no such marks.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        message = f"{page} has no marks of {name}"
        raise ValueError(message)
    text = "\n".join(["", *lines, ""])
    page.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")
