"""What commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console() -> Console:
    """Return the console for text and tables. Off a terminal it has no colours, and cuts no line."""
    from rich.console import Console  # noqa: PLC0415 - only commands that print tables need it

    shown = Console(highlight=False)
    return shown if shown.is_terminal else Console(highlight=False, width=250)


def table(*names: str) -> Table:
    """Return an empty table; a name that ends with `>` is that of a column of numbers."""
    from rich import box  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        is_number = name.endswith(">")
        justify: Any = "right" if is_number else "left"
        made.add_column(name.removesuffix(">"), justify=justify, overflow="fold")
    return made


def seconds(duration: float | None) -> str:
    """Return a duration for people, in its largest unit; a question mark if it is not known."""
    if duration is None:
        return "?"
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if duration >= 2 * unit:
            return f"{duration / unit:.0f} {letter}"
    return f"{duration:.0f} s"
