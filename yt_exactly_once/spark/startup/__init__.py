"""A folder for the `PYTHONPATH` of the Python processes that Spark starts, see `sitecustomize`."""

from __future__ import annotations

from pathlib import Path

FOLDER = str(Path(__file__).parent)
