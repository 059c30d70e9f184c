"""What commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console() -> Console:
    """Return the console for text and tables; off a terminal it prints them without colours."""
    from rich.console import Console  # noqa: PLC0415 - only commands that print tables need it

    return Console(highlight=False)
