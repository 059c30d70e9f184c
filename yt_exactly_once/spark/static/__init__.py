"""The modules by which Spark finds the formats without being told: see `pyspark_yt_exactly_once`.

The wheel has them at its top level, too.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = str(Path(__file__).parent)
"""What belongs on the `PYTHONPATH` where the package is not installed."""
