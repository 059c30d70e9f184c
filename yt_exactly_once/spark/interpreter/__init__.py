"""How Spark's Python processes start: see `sitecustomize`."""

from __future__ import annotations

from pathlib import Path

FOLDER = str(Path(__file__).parent)
"""What belongs on their `PYTHONPATH`."""
