"""The command `yt-exactly-once`: one module per command, nothing but arguments and output."""

from __future__ import annotations

from yt_exactly_once.cli.program import main

__all__ = ["main"]
