"""Where commands print and write to: JSON for programs, files. Text for people goes to `view.console`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from yt_exactly_once.errors import ConfigError


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def require_folder(file: Path | None, option: str) -> None:
    """Check that the folder of a file to write exists; raise `ConfigError` if it does not."""
    if file is not None and not file.parent.is_dir():
        raise ConfigError(
            "The directory of the file does not exist",
            remedy=f"Create it, or pass another path to {option}",
            path=file,
        )
